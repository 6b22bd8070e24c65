"""Which configurations of a study can be recommended, and why the others cannot."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.configurations import ConfigurationRecord, group
from orchestrator.constraints import parse_constraint, violated_constraints
from orchestrator.errors import StudyError
from orchestrator.paired import values_by_seed
from orchestrator.recommendation.answer import Costs
from orchestrator.records import Objective, StudyRecord, TrialState
from orchestrator.replicates import same_for_all_seeds

MOST_CANDIDATES = 400
"""Configurations that are compared in pairs; of more, those with the best means."""
STOPPED, _UNFINISHED = "stopped by the pruner", "unfinished"
_SAME_LATENCY = 1.05
"""Latencies within this factor count as equal: measurements of one architecture differ by as much."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Configurations that have a value and break no constraint."""

    kept: tuple[ConfigurationRecord, ...]
    left_out: Mapping[str, int]
    """How many were left out, by reason."""
    loops_left_out: Mapping[int, str]
    """Loop counts of which nothing is kept, with the reason that was most frequent."""
    unknown: Mapping[int, ConfigurationRecord]
    """Loop counts of which nothing was trained to the end, though something could have been: the most promising
    configuration of each."""


def quality_objective(study: StudyRecord) -> Objective | None:
    """The first objective that training changes, if there is one."""
    return next((one for one in study.objectives if not same_for_all_seeds(one.metric)), None)


def loops_of(one: ConfigurationRecord) -> int:
    """Its loop count."""
    return int(one.knobs.get("num_loops") or 1)


def candidates(study: StudyRecord, objective: Objective, where: Sequence[str]) -> Candidates:
    """Of a study; a `StudyError` for a constraint in `where` that cannot be read or whose metric nothing has."""
    everything = group(study)
    _refuse_unreadable(where, everything)
    reasons = [(one, _why_not(one, objective.metric, where)) for one in everything]
    kept = [one for one, reason in reasons if reason is None]
    by_loops: dict[int, Counter[str]] = {}
    for one, reason in reasons:
        if reason is not None:
            by_loops.setdefault(loops_of(one), Counter())[reason] += 1
    present = {loops_of(one) for one in kept}
    cut_short = [one for one, reason in reasons if reason in (STOPPED, _UNFINISHED) and loops_of(one) not in present]
    return Candidates(
        kept=tuple(kept),
        left_out=dict(Counter(reason for _, reason in reasons if reason is not None)),
        loops_left_out={
            loops: found.most_common(1)[0][0] for loops, found in sorted(by_loops.items()) if loops not in present
        },
        unknown={
            loops: max((one for one in cut_short if loops_of(one) == loops), key=partial(_promise, objective))
            for loops in sorted({loops_of(one) for one in cut_short})
        },
    )


def _promise(objective: Objective, one: ConfigurationRecord) -> tuple[int, float]:
    """How far a configuration came before it was stopped, and how good it was there."""
    value = one.metrics[objective.metric].mean if objective.metric in one.metrics else -math.inf
    return max(trial.stopped_at or 0 for trial in one.trials), value if objective.direction == "maximize" else -value


def _why_not(one: ConfigurationRecord, metric: str, where: Sequence[str]) -> str | None:
    if not one.complete and one.trials and all(trial.state is TrialState.FAIL for trial in one.trials):
        reasons = Counter((trial.failure or {}).get("reason", "unknown") for trial in one.trials)
        return f"failed ({reasons.most_common(1)[0][0]})"
    means = {name: interval.mean for name, interval in one.metrics.items()}
    if not one.feasible or violated_constraints(where, means):
        return "breaks a constraint"
    if not one.complete:
        return STOPPED if any(trial.stopped_at is not None for trial in one.trials) else _UNFINISHED
    return None if values_by_seed(one, metric) else _UNFINISHED


def _refuse_unreadable(where: Sequence[str], everything: Iterable[ConfigurationRecord]) -> None:
    known = sorted({name for one in everything for name in one.metrics})
    for text in where:
        try:
            constraint = parse_constraint(text)
        except ValueError as error:
            raise StudyError(f"--where {text!r} {error}") from None
        if known and constraint.metric not in known:
            raise StudyError(
                f"--where {text!r}: no trial of the study has {constraint.metric}; known are {', '.join(known)}"
            )


def costs_of(one: ConfigurationRecord) -> Costs:
    """What it costs, as far as that was measured."""

    def mean(metric: str) -> float | None:
        return one.metrics[metric].mean if metric in one.metrics else None

    return Costs(
        ms_per_token=mean("decode/ms_per_token"),
        latency_ratio=mean("decode/latency_ratio"),
        kv_bytes=mean("kv/bytes_per_sequence"),
        train_flops=mean("train/flops"),
    )


def cheapest(able: Sequence[ConfigurationRecord]) -> ConfigurationRecord:
    """Of configurations that are equally good, the best first: the fastest, then the smallest cache, then the best.

    Latencies within 5 % of the lowest count as equal.
    """
    latencies = [costs_of(one).latency or 0.0 for one in able]
    fast = [one for one, each in zip(able, latencies, strict=True) if each <= _SAME_LATENCY * min(latencies)]
    return min(fast, key=lambda one: costs_of(one).kv_bytes or 0.0)
