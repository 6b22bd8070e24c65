"""llama.cpp, through llama-cpp-python, from the GGUF file in the folder."""

from pathlib import Path

import numpy as np

from workers.interop.engines.engine import Engine, Ids, LogProbs, log_softmax

_FLOAT32 = 0  # GGML's number; llama.cpp keeps keys and values in float16 unless told otherwise, which costs 1e-2


def _run(folder: Path, ids: Ids, prefill: int) -> tuple[Ids, LogProbs]:
    from llama_cpp import Llama

    model = Llama(
        str(folder / "model.gguf"),
        n_ctx=ids.shape[1],
        logits_all=True,
        verbose=False,
        n_threads=1,
        type_k=_FLOAT32,
        type_v=_FLOAT32,
    )
    rows = []
    for row in ids:
        model.reset()
        model.eval(row[:prefill].tolist())
        for token in row[prefill:].tolist():
            model.eval([token])
        rows.append(np.array(model.scores[: len(row)]))
    return ids, log_softmax(np.stack(rows))


ENGINE = Engine(
    name="llama.cpp",
    package="llama_cpp",
    distribution="llama-cpp-python",
    layouts=("llama",),
    limit=2e-4,
    run=_run,
    needs_gguf=True,
)
