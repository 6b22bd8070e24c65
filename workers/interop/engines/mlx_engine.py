"""mlx-lm, on the CPU."""

from pathlib import Path

import numpy as np

from workers.interop.engines.engine import Engine, Ids, LogProbs, log_softmax


def _run(folder: Path, ids: Ids, prefill: int) -> tuple[Ids, LogProbs]:
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    cache, parts = make_prompt_cache(model), []
    for chunk in np.split(ids, range(prefill, ids.shape[1]), 1):
        parts.append(np.array(model(mx.array(chunk), cache=cache)))
    return ids, log_softmax(np.concatenate(parts, 1))


ENGINE = Engine(
    name="mlx-lm",
    package="mlx_lm",
    distribution="mlx-lm",
    layouts=("llama", "iquestloopcoder"),
    limit=2e-4,
    run=_run,
    loops=(1, 2),
)
