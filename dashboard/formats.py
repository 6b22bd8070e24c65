"""Words and numbers for people: titles and help of metrics, axes in fitting units, labels of configurations, times.

How a single number is written is `orchestrator.formats`' business, so that the terminal and the dashboard agree.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from orchestrator.formats import unit
from orchestrator.records import StudyRecord

_TITLES: Mapping[str, str] = {
    "val/bits_per_byte": "Held-out bits per byte",
    "val/accuracy": "Held-out accuracy",
    "val/loss": "Held-out loss",
    "humaneval/bits_per_byte": "Bits per byte of HumanEval's solutions",
    "mbpp/bits_per_byte": "Bits per byte of MBPP's solutions",
    "tasks/phop/accuracy": "p-hop accuracy",
    "tasks/phop/majority": "p-hop majority baseline",
    "train/loss": "Training loss",
    "train/lr": "Learning rate",
    "train/tokens": "Training tokens",
    "train/tokens_per_second": "Training speed",
    "train/flops": "Training compute",
    "train/seconds": "Training time",
    "model/parameters": "Parameters",
    "decode/ms_per_token": "Decode latency",
    "decode/ms_per_token_p95": "Decode latency, 95th percentile",
    "decode/latency_ratio": "Latency, relative to no loops",
    "decode/tokens_per_second": "Decode speed",
    "decode/roofline_fraction": "Decode speed over the memory floor",
    "prefill/ms": "Prefill time",
    "kv/bytes_per_sequence": "KV cache per sequence",
    "kv/carry_bytes_per_sequence": "Carried state per sequence",
    "kv/ratio": "KV cache, relative to no loops",
}
_TASK = re.compile(r"tasks/(?P<task>\w+)/(?:depth(?P<depth>\d+)/|(?P<scope>\w+)/)?(?P<kind>accuracy|majority)")
_SCOPES: Mapping[str | None, str] = {
    "extrapolation": " beyond the trained depths",
    "sequences": " of whole sequences",
}
_HELP: Mapping[str, str] = {
    "bits_per_byte": "How many bits the model needs per byte of text it has not seen; lower is better, and it compares "
    "across tokenizers.",
    "accuracy": "Share of positions answered exactly right; higher is better.",
    "majority": "What always giving the most frequent answer would score: an accuracy near it is worth nothing.",
    "ms_per_token": "Median time of one decoding step with real caches, at the benchmark's size.",
    "latency_ratio": "Decode latency over that of the same model run with one loop, measured alternately.",
    "bytes_per_sequence": "Bytes of all key and value caches that one sequence holds, counted from their tensors.",
}
TERMS: Mapping[str, str] = {
    "num_loops": "R: how often the same layers are run per token.",
    "window": "G-SWA: later loops also look at this many latest tokens with keys and values of their own (gated "
    "sliding-window attention).",
    "gate_mode": "How later loops mix the shared and their own local attention: a learned gate, or a fixed number.",
    "variant": "A published set of loop knobs; knobs beside it win over it.",
    "seed": "Replicates of one configuration differ only in their seed.",
    "seeds": "How many seeds of the configuration are complete.",
    "lr": "Learning rate at the end of the warm-up.",
    "configuration": "Everything that decides a result except the seed: model, data and training.",
    "attempt": "One execution of a trial; a retry is the next attempt.",
    "front": "Pareto front: configurations that no other beats in every objective, by their means over seeds.",
    "interval": "95 % interval of the mean over seeds (Student's t); one seed has none.",
    "hypervolume": "How much of the objective space the front covers, from 0 up; it grows while better trade-offs are "
    "found and levels off when more trials no longer help.",
    "importance": "PED-ANOVA: how differently a parameter is spread among the best quarter of the trials and among "
    "all; shares of one.",
    "infeasible": "Breaks a constraint of the study; drawn hollow and never called best.",
    "pruned": "Stopped early by the pruner, or known to break a constraint before training.",
    "budget": "Distinct configurations over the study's whole life, whatever was stopped and continued.",
    "driver": "The process that runs the study: it asks for trials and sends them to workers.",
    "baseline": "Differences are counted from this configuration, seed by seed where both have the seed.",
}
_SAID_BY_TITLE = ("bits/byte", "x")
"""Units that stand in the title already."""
_LARGER_IS_BETTER = ("accuracy", "tokens_per_second", "roofline_fraction")
_KNOB_LABELS = {"num_loops": "R={}", "window": "window {}", "gate_mode": "gate {}", "variant": "{}"}


@dataclass(frozen=True)
class Axis:
    """How a metric stands on an axis."""

    title: str
    """With the unit in brackets."""
    scale: float
    """What its values are divided by."""


def title(metric: str) -> str:
    """A metric's name for people; one we do not know keeps its own."""
    found = None if metric in _TITLES else _TASK.fullmatch(metric)
    if found is None:
        return _TITLES.get(metric, metric)
    where = f" at depth {found['depth']}" if found["depth"] else _SCOPES.get(found["scope"], "")
    return f"{found['task']} {'accuracy' if found['kind'] == 'accuracy' else 'majority baseline'}{where}"


def help_text(metric: str) -> str | None:
    """What a metric means, in one sentence."""
    return _HELP.get(metric.rsplit("/", 1)[-1])


def axis(metric: str, values: Iterable[float]) -> Axis:
    """Title and scale that suit the largest value: byte counts in KiB, MiB or GiB."""
    if unit(metric) != "bytes":
        suffix = "" if unit(metric) in ("", *_SAID_BY_TITLE) else f" ({unit(metric)})"
        return Axis(title(metric) + suffix, 1.0)
    largest = max((abs(value) for value in values), default=0.0)
    name, scale = next(
        ((name, scale) for name, scale in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)) if largest >= scale),
        ("B", 1.0),
    )
    return Axis(f"{title(metric)} ({name})", scale)


def nice_step(span: float) -> float:
    """About a two-hundredth of a span, as 1, 2 or 5 times a power of ten."""
    if not span > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / 100))
    return next(factor * power for factor in (5, 2, 1) if factor * power <= span / 100)


def number_pattern(metric: str) -> str:
    """A printf pattern with the digits that `orchestrator.formats.number` gives the metric."""
    if unit(metric) in ("bytes", "ms", "ms/token"):
        return "%.2f"
    return "%.4f" if "per_byte" in metric or "loss" in metric else "%.3f"


def direction(study: StudyRecord, metric: str) -> Literal["minimize", "maximize"]:
    """Which way a metric is better: as the study says, else by its kind."""
    for objective in study.objectives:
        if objective.metric == metric:
            return objective.direction
    return "maximize" if metric.rsplit("/", 1)[-1].startswith(_LARGER_IS_BETTER) else "minimize"


def configuration_label(params: Mapping[str, Any]) -> str:
    """A configuration in a few words, from its searched parameters: `R=2 · window 16 · gate learned`."""
    return (
        " · ".join([_KNOB_LABELS.get(name, name + "={}").format(plain(value)) for name, value in params.items()])
        or "all"
    )


def gate_kind(knobs: Mapping[str, Any]) -> str:
    """One of the three kinds of gate that have a symbol."""
    if int(knobs.get("num_loops") or 1) == 1 or knobs.get("local") in (None, "none"):
        return "no local branch"
    return "learned gate" if knobs.get("gate_mode") in (None, "learned") else "fixed gate"


def moment(value: datetime | None) -> str:
    """A time in UTC, the dashboard's only zone."""
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def plain(value: Any) -> str:
    """A knob's value as text: `8` for 8.0, `-` for none."""
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:g}"
    return "-" if value is None else str(value)
