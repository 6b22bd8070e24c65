"""One engine in a process of its own, in whatever environment has it: takes decode steps when it is told to.

    python -m benchmarks.peer_process ENGINE FOLDER CONTEXT STEPS

Lines in: `SETTING N`, answered by the seconds of N greedy steps as a JSON list. Before that one line with the settings
that the engine has, when each of them holds CONTEXT tokens and is warm. Imports nothing but the engine it runs.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Steps = Iterator[float]
"""Seconds of one step after the other."""
THREADS = 2


def ours(folder: Path, context: int, steps: int) -> dict[str, Steps]:
    """This project's decoder: plain, PLT and the sequential loop on the same weights."""
    import torch

    from workers.config import ModelConfig, variant_knobs
    from workers.decoding import Decoder, DecoderWeights
    from workers.models import LoopedTransformer, share_weights

    torch.set_num_threads(THREADS)
    sizes = json.loads((folder / "shape.json").read_text(encoding="utf-8"))
    models = {
        f"{variant} R={loops}" if loops > 1 else "plain": ModelConfig(
            **sizes, **(variant_knobs(variant) | {"num_loops": loops})
        )
        for variant, loops in (("plt", 3), ("plt", 2), ("loop", 2), ("vanilla", 1))
    }
    widest = LoopedTransformer(models["plt R=3"], dtype=torch.bfloat16)
    weights = DecoderWeights(widest, 12)

    def take(config: ModelConfig, batch: int) -> Steps:
        decoder = Decoder(share_weights(widest, config), batch, context + steps, weights=weights)
        logits = decoder.prefill(torch.ones(batch, context, dtype=torch.int64), last_only=True)[:, 0]
        while True:
            start = time.perf_counter()
            logits = decoder.step(logits.argmax(-1))
            yield time.perf_counter() - start

    return {f"{name}, {batch} rows": take(config, batch) for name, config in models.items() for batch in (1, 4)}


def llama_cpp(folder: Path, context: int, steps: int) -> dict[str, Steps]:
    """llama.cpp on the GGUF file: one to four sequences in a batch."""
    import llama_cpp
    import numpy as np

    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        str(folder / "gguf" / "model.gguf").encode(), llama_cpp.llama_model_default_params()
    )
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def take(rows: int) -> Steps:
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = rows * (context + steps), rows
        parameters.n_batch = parameters.n_ubatch = max(512, context)
        parameters.n_threads = parameters.n_threads_batch = THREADS
        state = llama_cpp.llama_init_from_model(model, parameters)
        batch = llama_cpp.llama_batch_init(max(512, context), 0, 1)
        for row in range(rows):
            _fill(batch, [(1, place, row) for place in range(context)])
            assert llama_cpp.llama_decode(state, batch) == 0
        tokens = [1] * rows
        for place in range(context, context + steps):
            start = time.perf_counter()
            _fill(batch, [(token, place, row) for row, token in enumerate(tokens)])
            assert llama_cpp.llama_decode(state, batch) == 0
            logits = llama_cpp.llama_get_logits(state)
            tokens = np.ctypeslib.as_array(logits, (rows, vocabulary)).argmax(-1).tolist()
            yield time.perf_counter() - start

    return {f"llama.cpp, {rows} rows": take(rows) for rows in (1, 2, 3, 4)}


def _fill(batch: Any, entries: list[tuple[int, int, int]]) -> None:
    batch.n_tokens = len(entries)
    for index, (token, place, row) in enumerate(entries):
        batch.token[index], batch.pos[index], batch.logits[index] = token, place, True
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = row


def transformers(folder: Path, context: int, steps: int, cache: str) -> dict[str, Steps]:
    """transformers' `generate` on the Llama folder; its own loop runs, held between two tokens."""
    import threading
    from queue import Queue

    import torch
    from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

    torch.set_num_threads(THREADS)
    model = AutoModelForCausalLM.from_pretrained(folder / "llama", dtype=torch.bfloat16)
    wanted: Queue[None] = Queue()
    finished: Queue[float] = Queue()

    class Hold(StoppingCriteria):
        """Called after every token: tells how long it took, waits until the next one is wanted."""

        def __init__(self) -> None:
            self.start: float | None = None

        def __call__(self, input_ids: torch.Tensor, _scores: torch.Tensor, **_: Any) -> torch.Tensor:
            if self.start is not None:
                finished.put(time.perf_counter() - self.start)
            wanted.get()
            self.start = time.perf_counter()
            return torch.zeros(len(input_ids), dtype=torch.bool)

    def generate() -> None:
        implementation = {} if cache == "dynamic" else {"cache_implementation": cache}
        model.generate(
            torch.ones(1, context, dtype=torch.int64),
            attention_mask=torch.ones(1, context, dtype=torch.int64),
            max_new_tokens=steps + 1,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([Hold()]),
            **implementation,
        )

    threading.Thread(target=generate, daemon=True).start()

    def take() -> Steps:
        while True:
            wanted.put(None)
            yield finished.get()

    return {f"transformers, {cache} cache": take()}


def vllm(folder: Path, context: int, steps: int, kind: str) -> dict[str, Steps]:
    """vLLM in this process, compiled, on the Llama folder or on its own two-pass loop."""
    scratch = tempfile.mkdtemp()
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(THREADS), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    os.environ |= dict.fromkeys(("VLLM_CACHE_ROOT", "HF_HOME", "VLLM_RPC_BASE_PATH"), scratch)
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(folder / kind),
        skip_tokenizer_init=True,
        trust_remote_code=True,
        dtype="bfloat16",
        max_model_len=context + steps + 8,
        max_num_seqs=4,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=256 << 20,
        seed=0,
    ).llm_engine
    sampling = SamplingParams(temperature=0, max_tokens=steps + 4, detokenize=False, ignore_eos=True)

    def take() -> Steps:
        engine.add_request("0", {"prompt_token_ids": [1] * context}, sampling)
        engine.step()  # the prompt
        while True:
            start = time.perf_counter()
            engine.step()
            yield time.perf_counter() - start

    return {f"vLLM, {'Llama' if kind == 'llama' else 'loop R=2'}": take()}


ENGINES: dict[str, Callable[[Path, int, int], dict[str, Steps]]] = {
    "ours": ours,
    "llama.cpp": llama_cpp,
    "transformers dynamic": lambda *sizes: transformers(*sizes, cache="dynamic"),
    "transformers static": lambda *sizes: transformers(*sizes, cache="static"),
    "vLLM llama": lambda *sizes: vllm(*sizes, kind="llama"),
    "vLLM loop": lambda *sizes: vllm(*sizes, kind="loop"),
}
WARM_UP = 4


def main() -> None:
    """Serve."""
    name, folder, context, steps = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # engines print
    settings = ENGINES[name](Path(folder), int(context), int(steps))
    for setting in settings.values():
        for _ in range(WARM_UP):
            next(setting)
    print(json.dumps(list(settings)), file=answers, flush=True)
    for line in sys.stdin:
        setting, count = line.rsplit(maxsplit=1)
        print(json.dumps([next(settings[setting]) for _ in range(int(count))]), file=answers, flush=True)
    os._exit(0)  # engines' threads would hold the process


if __name__ == "__main__":
    main()
