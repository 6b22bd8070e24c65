"""The layouts that a checkpoint can have, and which of them a model can be written in.

    llama            one loop                                      transformers, vLLM, mlx-lm, llama.cpp, ...
    iquestloopcoder  loops without CLP, shared KV, query gate      vLLM, SGLang, mlx-lm (two loops)
    iquestpltcoder   every looped model                            transformers with the code in the folder

An engine that does not know a knob ignores it, loads the file and computes something else. So a layout is refused, with
every reason, unless it says all that the model is.
"""

from enum import StrEnum

from workers.config import ModelConfig
from workers.interop.errors import InteropError


class Layout(StrEnum):
    """A `model_type` of Hugging Face's `config.json`."""

    LLAMA = "llama"
    LOOP = "iquestloopcoder"
    PLT = "iquestpltcoder"


def choose_layout(config: ModelConfig) -> Layout:
    """The layout that most engines read, of those that can express the model."""
    return next(layout for layout in Layout if not refusals(config, layout))


def require_layout(config: ModelConfig, layout: Layout) -> None:
    """Raise an `InteropError` with every reason why the layout cannot express the model, and the one that can."""
    reasons = refusals(config, layout)
    if reasons:
        raise InteropError(f"layout {layout} cannot express it: {'; '.join(reasons)}; use {choose_layout(config)}")


def refusals(config: ModelConfig, layout: Layout) -> list[str]:
    """Why `layout` would compute something else than the model; empty when it is the same function."""
    config = config.normalised()
    if layout is Layout.LLAMA:
        return [] if config.num_loops == 1 else [f"it has {config.num_loops} loops, and Llama runs its layers once"]
    if config.num_loops == 1:
        return ["it has one loop, which looped engines read as two or not at all"]
    return _loop_refusals(config) if layout is Layout.LOOP else []


def is_published(config: ModelConfig) -> bool:
    """Whether LoopCoder-v2's own settings say all of a looped model, so that engines which know only those read it."""
    config = config.normalised()
    return config.clp and config.reinject and config.kv_mode == "share_first" and config.has_gate


def _loop_refusals(config: ModelConfig) -> list[str]:
    found = {
        "clp is on, and the layout has no cross-loop shift": config.clp,
        "reinject is on, and the layout adds no embedding to later loops": config.reinject,
        f"hidden_scale is {config.hidden_scale:g}, and the layout hands states on unscaled": config.hidden_scale != 1.0,
        "norm_per_loop is on, and the layout normalises after the last loop only": config.norm_per_loop,
        "kv_mode is per_loop, and the layout shares the first loop's keys and values": config.kv_mode == "per_loop",
        "local is none, and the layout always has a window": config.local == "none",
        "gate_input is hidden, and the layout's gate reads the query": config.gate_input == "hidden",
        f"gate_mode is {config.gate_mode}, and the layout's gate is learned": config.local == "swa"
        and not config.has_gate,
    }
    return [reason for reason, applies in found.items() if applies]
