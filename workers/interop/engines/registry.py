"""Every engine by name; importing this imports none of them."""

from collections.abc import Mapping

from workers.interop.engines import llama_cpp_engine, mlx_engine, transformers_engine, vllm_engine
from workers.interop.engines.engine import Engine

ENGINES: Mapping[str, Engine] = {
    module.ENGINE.name: module.ENGINE for module in (transformers_engine, mlx_engine, vllm_engine, llama_cpp_engine)
}
