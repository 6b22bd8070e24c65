"""From records to tables: pure functions that make the DataFrames behind every page.

Intervals are those of `orchestrator.configurations`; nothing is averaged here. Columns of a metric `m` are `m` (the
mean over seeds), `m low` and `m high` (NaN with one seed).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import pandas as pd

from dashboard import formats
from orchestrator.configurations import ConfigurationRecord, group
from orchestrator.formats import unit as metric_unit
from orchestrator.formats import with_interval
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.statistics import Interval

_EPOCH = datetime.fromtimestamp(0, UTC)
Direction = Literal["minimize", "maximize"]


def studies_frame(studies: Iterable[StudyRecord]) -> pd.DataFrame:
    """One row per study, for the page of studies."""
    columns = [
        "study",
        "question",
        "state",
        "configurations",
        "progress",
        "trials",
        "failures",
        "best",
        "created",
        "moved",
    ]
    return pd.DataFrame([_study_row(study) for study in studies], columns=columns)


def _study_row(study: StudyRecord) -> dict[str, object]:
    done = sum(1 for configuration in group(study) if configuration.complete)
    finished = sum(1 for trial in study.trials if trial.state.finished)
    return {
        "study": study.name,
        "question": study.question,
        "state": study.state.value,
        "configurations": f"{done} of {study.budget}",
        "progress": min(100.0, 100 * done / study.budget) if study.budget else 0.0,
        "trials": finished,
        "failures": failures_text(study),
        "best": best_text(study),
        "created": (study.created or _EPOCH).astimezone(UTC),
        "moved": last_moved(study),
    }


def failures_text(study: StudyRecord) -> str:
    """Failed trials by reason, the most frequent first: `2 diverged, 1 timeout`; empty when none failed."""
    failed = [trial for trial in study.trials if trial.state is TrialState.FAIL]
    reasons = Counter((trial.failure or {}).get("reason", "unknown") for trial in failed)
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())


def best_text(study: StudyRecord) -> str:
    """The first objective's best mean among feasible, complete configurations, in words."""
    objective = study.objectives[0]
    able = [one for one in group(study) if one.complete and one.feasible and objective.metric in one.metrics]
    if not able:
        return "no feasible configuration yet" if study.trials else "nothing yet"
    sign = 1.0 if objective.direction == "minimize" else -1.0
    best = min(able, key=lambda one: sign * one.metrics[objective.metric].mean)
    text = interval_text(objective.metric, best.metrics[objective.metric])
    return f"{text} ({formats.configuration_label(best.params)})"


def interval_text(metric: str, interval: Interval) -> str:
    """Mean, half-width and unit: `1.234 ± 0.012 bits/byte`."""
    unit = metric_unit(metric)
    text = with_interval(metric, interval)
    return text if unit in ("", "bytes") else f"{text} {unit}"


def last_moved(study: StudyRecord) -> datetime:
    """When something last happened, in UTC; the epoch when nothing has."""
    moments = [study.created, *(trial.started for trial in study.trials), *(trial.ended for trial in study.trials)]
    return max((moment.astimezone(UTC) for moment in moments if moment is not None), default=_EPOCH)


def to_interval(mean: float, low: float, high: float, n: int) -> Interval:
    """An interval from a table's cells, where NaN stands for none."""
    return Interval(mean, None if pd.isna(low) else low, None if pd.isna(high) else high, n)


def configurations_frame(study: StudyRecord, configurations: Sequence[ConfigurationRecord]) -> pd.DataFrame:
    """One row per configuration: identity, knobs that are drawn, standing, every metric's mean and interval."""
    metrics = sorted({metric for one in configurations for metric in one.metrics})
    rows = [_configuration_row(one, metrics) for one in configurations]
    columns = ["fingerprint", "label", "trials", "seeds", "num_loops", "window", "gate", "standing"]
    columns += [name for name in study.search if name not in columns]
    return pd.DataFrame(rows, columns=columns + [column for metric in metrics for column in metric_columns(metric)])


def metric_columns(metric: str) -> tuple[str, str, str]:
    """A metric's columns: mean, low, high."""
    return metric, f"{metric} low", f"{metric} high"


def _configuration_row(one: ConfigurationRecord, metrics: Sequence[str]) -> dict[str, object]:
    row: dict[str, object] = {
        **one.params,
        "fingerprint": one.fingerprint,
        "label": formats.configuration_label(one.params),
        "trials": [trial.number for trial in one.trials],
        "seeds": sum(1 for trial in one.trials if trial.state is TrialState.COMPLETE),
        "num_loops": int(one.knobs.get("num_loops") or 1),
        "window": one.knobs.get("window"),
        "gate": formats.gate_kind(one.knobs),
        "standing": standing(one),
    }
    for metric in metrics:
        interval = one.metrics.get(metric)
        values = (math.nan,) * 3 if interval is None else (interval.mean, interval.low, interval.high)
        row |= dict(zip(metric_columns(metric), values, strict=True))
    return row


def standing(one: ConfigurationRecord) -> str:
    """How a configuration stands: `front`, `dominated`, `infeasible`, `stopped`, `unfinished` or `failed`."""
    if not one.feasible:
        return "infeasible"
    if one.trials and all(trial.state is TrialState.FAIL for trial in one.trials):
        return "failed"
    if not one.complete:
        return "stopped" if any(trial.stopped_at is not None for trial in one.trials) else "unfinished"
    return "front" if one.on_front else "dominated"


def metrics_of(study: StudyRecord, configurations: Iterable[ConfigurationRecord]) -> list[str]:
    """Names of the metrics that some complete configuration has, the objectives first."""
    known = {metric for one in configurations if one.complete for metric in one.metrics}
    objectives = [objective.metric for objective in study.objectives if objective.metric in known]
    return objectives + sorted(known.difference(objectives))


@dataclass(frozen=True)
class Column:
    """How a column of numbers is headed and written."""

    title: str
    format: str
    help: str | None = None


def display(
    frame: pd.DataFrame, search: Sequence[str], metrics: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, Column]]:
    """The configurations' table for people, those on the front first, and how its number columns are written.

    A metric has two columns, mean and half-width of its interval, as numbers in a fitting unit, so that they sort; the
    second is left out while every configuration has one seed.
    """
    order = {
        name: position
        for position, name in enumerate(("front", "dominated", "infeasible", "stopped", "unfinished", "failed"))
    }
    rows = frame.sort_values("standing", key=lambda column: column.map(order), kind="stable")
    shown = rows[["standing", *search, "seeds"]].copy()
    for name in search:
        shown[name] = [formats.plain(value) for value in shown[name]]
    config: dict[str, Column] = {}
    for metric in metrics:
        mean, low, high = metric_columns(metric)
        axis = formats.axis(metric, rows[mean].dropna())
        shown[mean] = rows[mean].astype(float) / axis.scale
        pattern = formats.number_pattern(metric)
        config[mean] = Column(axis.title, pattern, formats.help_text(metric))
        half_width = (rows[high].astype(float) - rows[low].astype(float)) / 2 / axis.scale
        if half_width.notna().any():
            shown[f"± {metric}"] = half_width
            config[f"± {metric}"] = Column("±", pattern, formats.TERMS["interval"])
    return shown, config


def front(frame: pd.DataFrame, x: str, y: str, x_direction: Direction, y_direction: Direction) -> pd.DataFrame:
    """The rows that no other beats in both of two metrics, by x; only feasible, complete configurations can be here."""
    able = frame[frame["standing"].isin(["front", "dominated"])].dropna(subset=[x, y])
    able = able.sort_values([x, y], ascending=[x_direction == "minimize", y_direction == "minimize"])
    better = able[y].cummin() if y_direction == "minimize" else able[y].cummax()
    first = ~better.duplicated() & (able[y] == better)
    return able[first].sort_values(x)


def trials_frame(study: StudyRecord) -> pd.DataFrame:
    """One row per trial, with its searched parameters and every final metric."""
    metrics = sorted({metric for trial in study.trials for metric in trial.metrics})
    rows = [
        {
            "trial": trial.number,
            "state": trial.state.value,
            "seed": trial.seed,
            **{name: formats.plain(trial.params.get(name)) for name in study.search},
            "feasible": trial.feasible,
            "attempts": len(trial.attempts),
            "failure": (trial.failure or {}).get("reason", ""),
            "seconds": _seconds(trial),
            **{metric: trial.metrics.get(metric, math.nan) for metric in metrics},
        }
        for trial in study.trials
    ]
    columns = ["trial", "state", "seed", *study.search, "feasible", "attempts", "failure", "seconds", *metrics]
    return pd.DataFrame(rows, columns=list(dict.fromkeys(columns)))


def _seconds(trial: TrialRecord) -> float:
    if trial.started is None or trial.ended is None:
        return math.nan
    return (trial.ended - trial.started).total_seconds()


def attempts_frame(trial: TrialRecord) -> pd.DataFrame:
    """One row per attempt of a trial."""
    rows = [
        {
            "attempt": attempt.number,
            "started": formats.moment(attempt.started),
            "ended": formats.moment(attempt.ended),
            "failure": (attempt.failure or {}).get("reason", ""),
            "message": (attempt.failure or {}).get("message", ""),
        }
        for attempt in trial.attempts
    ]
    return pd.DataFrame(rows, columns=["attempt", "started", "ended", "failure", "message"])


def facts_frame(facts: Mapping[str, object]) -> pd.DataFrame:
    """Nested plain facts as two columns, `name` and `value`, in words."""
    return pd.DataFrame(_facts(facts), columns=["name", "value"])


def _facts(facts: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _facts(value, f"{prefix}{name} / ")
        elif value is not None:
            yield prefix + name, str(value)
