"""Hugging Face transformers, with the code in the folder where it has none of its own."""

from pathlib import Path

import numpy as np

from workers.interop.engines.engine import Engine, Ids, LogProbs, log_softmax


def _run(folder: Path, ids: Ids, prefill: int) -> tuple[Ids, LogProbs]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, torch_dtype=torch.float32)
    model.train(False)
    tensor, parts, cache = torch.from_numpy(ids), [], None
    with torch.inference_mode():
        for chunk in torch.split(tensor, [prefill, *[1] * (ids.shape[1] - prefill)], 1):
            output = model(chunk, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            parts.append(output.logits.numpy())
    return ids, log_softmax(np.concatenate(parts, 1))


ENGINE = Engine(
    name="transformers",
    package="transformers",
    distribution="transformers",
    layouts=("llama", "iquestloopcoder", "iquestpltcoder"),
    limit=1e-4,
    run=_run,
)
