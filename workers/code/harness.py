"""Any task of lm-evaluation-harness (Gao et al.), through its `LM` interface: an extra, imported when it is asked for.

    pip install 'plt-orchestrator[harness]'

Most of its tasks fetch their data from the Hugging Face hub. A folder of task files with `dataset_path: json` works
without a network; so do `HF_HUB_OFFLINE=1` and data that was fetched before. Its humaneval and mbpp tasks run what a
model writes without protection: use `plt evaluate --set` for these.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workers.code.reference import windows
from workers.code.writer import Writer
from workers.data import IGNORED


def harness_metrics(writer: Writer, tasks: Sequence[str], task_folder: Path | None) -> dict[str, float]:
    """`harness/TASK/METRIC` of every task; a `ModuleNotFoundError` says how to install the harness.

    With a `task_folder` only the tasks in it are known, which spares the harness reading its own fourteen thousand.
    """
    try:
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; pip install 'plt-orchestrator[harness]' brings lm-evaluation-harness"
        ) from error
    here = None if task_folder is None else str(task_folder)
    manager = TaskManager(include_path=here, include_defaults=task_folder is None)
    unknown = [task for task in tasks if task not in manager.all_tasks]
    if unknown:
        raise ValueError(f"lm-evaluation-harness knows no task {unknown[0]!r}; give --task-folder where its file is")
    results = simple_evaluate(model=_adapter(writer), tasks=list(tasks), task_manager=manager, bootstrap_iters=0)
    return {
        f"harness/{task}/{metric.partition(',')[0]}": float(value)
        for task, found in results["results"].items()
        for metric, value in found.items()
        if isinstance(value, int | float) and not metric.endswith(("_stderr", "sample_len"))
    }


class Likelihood:
    """Log-likelihoods of text under a model, in windows of its own length."""

    def __init__(self, writer: Writer) -> None:
        self._model, self._tokenizer = writer.model, writer.tokenizer

    def of(self, context: str, continuation: str) -> tuple[float, bool]:
        """Nats of a continuation, and whether greedy decoding would write it."""
        separator = self._tokenizer.vocab_size - 1
        before, after = self._tokenizer.encode([context.encode(), continuation.encode()])
        tokens = np.concatenate([[separator], before, after])
        nats, greedy = 0.0, True
        for inputs, targets in windows(tokens, 1 + len(before), self._model.config.max_position_embeddings, separator):
            own_nats, own_greedy = self._window(inputs, targets)
            nats, greedy = nats + own_nats, greedy and own_greedy
        return nats, greedy

    def _window(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> tuple[float, bool]:
        device = next(self._model.parameters()).device
        with torch.inference_mode():
            logits = self._model(torch.from_numpy(inputs)[None].to(device)).logits[0].float().cpu()
        labelled = torch.from_numpy(np.flatnonzero(targets != IGNORED))
        labels = torch.from_numpy(targets)[labelled]
        scores = logits[labelled].log_softmax(-1)
        return float(scores.gather(1, labels[:, None]).sum()), bool((scores.argmax(-1) == labels).all())


def _adapter(writer: Writer) -> Any:
    """The harness's `LM`: a class made here, because its base is only there when the extra is."""
    from lm_eval.api.model import LM

    likelihood = Likelihood(writer)

    class Adapter(LM):  # type: ignore[misc]  # without the extra its base is unknown
        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            del disable_tqdm
            return [likelihood.of(*request.args) for request in requests]

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
            del disable_tqdm
            return [likelihood.of("", request.args[0])[0] for request in requests]

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            del disable_tqdm
            return [_written(writer, *request.args) for request in requests]

    return Adapter()


def _written(writer: Writer, context: str, settings: dict[str, Any]) -> str:
    """A greedy answer, or a sampled one where the task asks for a temperature."""
    until = settings.get("until", [])
    stops = [until] if isinstance(until, str) else list(until)
    own = Writer(
        model=writer.model,
        tokenizer=writer.tokenizer,
        temperature=settings.get("temperature", 0.0) if settings.get("do_sample") else 0.0,
        max_new_tokens=settings.get("max_gen_toks", writer.max_new_tokens),
    )
    return own.write(context, stops)[0]
