"""Names of the metrics that the evaluations of a data set give, known from its configuration alone."""

from collections.abc import Mapping

from workers.config.data_config import DataConfig
from workers.config.task_shapes import TASKS

TEXT = ("val/bits_per_byte", "val/accuracy")
"""Held-out text."""
CODE: Mapping[str, tuple[str, ...]] = {
    "humaneval": ("humaneval/bits_per_byte",),
    "mbpp": ("mbpp/bits_per_byte",),
}
"""Measured once, after training, by code set."""


def held_out_metrics(data: DataConfig) -> tuple[str, ...]:
    """Metrics of every evaluation."""
    names = [*(TEXT if data.text is not None else ())]
    for task in data.tasks:
        prefixes = [f"tasks/{task}"]
        scored = data.scored_depths(task)
        if scored[-1] > data.trained_depths(task)[-1]:
            prefixes.append(f"tasks/{task}/extrapolation")
        if len(scored) > 1:
            prefixes += [f"tasks/{task}/depth{depth}" for depth in scored]
        names += [f"{prefix}/{name}" for prefix in prefixes for name in ("accuracy", "majority")]
        if TASKS[task].whole_sequences:
            names.append(f"tasks/{task}/sequences/accuracy")
    return (*names, "val/loss")


def final_metrics(data: DataConfig) -> tuple[str, ...]:
    """Metrics that are measured once, after training."""
    return tuple(name for each in data.code_sets.split("+") for name in CODE.get(each, ()))
