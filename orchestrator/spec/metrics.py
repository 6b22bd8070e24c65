"""Which metrics a study produces, by its data and its benchmark, and what values they can have: what objectives and
constraints may ask for."""

import math
import re
from collections.abc import Sequence

from workers.config import BenchmarkConfig, DataConfig
from workers.config.held_out import CODE, TEXT, final_metrics, held_out_metrics
from workers.config.task_shapes import TASKS

_TASK = re.compile(
    rf"tasks/(?:{'|'.join(TASKS)})/(?:(?:extrapolation/|depth\d+/)?(?:accuracy|majority)|sequences/accuracy)"
)
TRAINING = ("model/parameters", "train/flops", "train/tokens", "train/seconds", "train/loss")
"""Every trial."""
DECODING = (
    "decode/ms_per_token",
    "decode/ms_per_token_p95",
    "decode/latency_ratio",
    "decode/tokens_per_second",
    "decode/roofline_fraction",
    "prefill/ms",
    "kv/bytes_per_sequence",
    "kv/carry_bytes_per_sequence",
    "kv/ratio",
)
"""The decode benchmark, for its first batch size; for the others with `bN/` before the name."""

_SHARES = ("accuracy", "majority")
_MAYBE_ZERO = ("loss", "bits_per_byte", "roofline_fraction", "carry_bytes_per_sequence")
_ABOVE_ZERO = math.ulp(0.0)


def exists(metric: str) -> bool:
    """Whether some study produces it, at the first batch size."""
    code = (name for names in CODE.values() for name in names)
    return evaluated(metric) or metric in (*TRAINING, *DECODING, *code)


def evaluated(metric: str) -> bool:
    """Whether it is known at every evaluation, so that a pruner can judge by it."""
    return metric in (*TEXT, "val/loss") or _TASK.fullmatch(metric) is not None


def produced(data: Sequence[DataConfig], grid: BenchmarkConfig | None) -> list[str]:
    """The metrics that every point of a study has, whichever of its data it is trained on."""
    held_out = [(*held_out_metrics(each), *final_metrics(each)) for each in data]
    common = [metric for metric in held_out[0] if all(metric in other for other in held_out)]
    if grid is None:
        return [*common, *TRAINING]
    further = [f"b{size}/{metric}" for size in grid.batch_sizes[1:] for metric in DECODING]
    return [*common, *DECODING, *further, *TRAINING]


def possible(metric: str) -> tuple[float, float, str]:
    """The lowest and the highest value that a metric can have, and both in words."""
    name = metric.rsplit("/", 1)[-1]
    if name in _SHARES:
        return 0.0, 1.0, "from 0 to 1"
    if name in _MAYBE_ZERO:
        return 0.0, math.inf, "0 or more"
    return _ABOVE_ZERO, math.inf, "above 0"
