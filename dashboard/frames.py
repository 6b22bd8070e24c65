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

import numpy as np
import pandas as pd

from dashboard import formats
from dashboard.configuration_rows import ConfigurationRows, metric_columns
from orchestrator.cluster_state import ClusterState
from orchestrator.configurations import ConfigurationRecord
from orchestrator.formats import byte_count, duration, with_interval
from orchestrator.formats import unit as metric_unit
from orchestrator.left_behind import LeftFile
from orchestrator.live_state import LiveState, LiveTrial
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.statistics import Interval
from orchestrator.time_left import expected_end

_STANDINGS = ("front", "dominated", "outside", "infeasible", "stopped", "unfinished", "failed")
_EPOCH = datetime.fromtimestamp(0, UTC)
Direction = Literal["minimize", "maximize"]


STUDY_COLUMNS = (
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
    "ends",
)


def studies_frame(rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """One row per study, the newest first, from `study_row`s."""
    frame = pd.DataFrame(list(rows), columns=list(STUDY_COLUMNS))
    return frame.sort_values(["created", "study"], ascending=[False, True], ignore_index=True)


def study_row(study: StudyRecord, configurations: Sequence[ConfigurationRecord]) -> dict[str, object]:
    """How a study stands, for the table of studies; `ends` is when it is expected to, while it runs."""
    done = sum(1 for configuration in configurations if configuration.complete)
    return {
        "study": study.name,
        "question": study.question,
        "state": study.state.value,
        "configurations": f"{done} of {study.budget}",
        "progress": min(100.0, 100 * done / study.budget) if study.budget else 0.0,
        "trials": sum(1 for trial in study.trials if trial.state.finished),
        "failures": failures_text(study),
        "best": best_text(study, configurations),
        "created": (study.created or _EPOCH).astimezone(UTC),
        "moved": last_moved(study),
        "ends": expected_end(study),
    }


def failures_text(study: StudyRecord) -> str:
    """Failed trials by reason, the most frequent first: `2 diverged, 1 timeout`; empty when none failed."""
    failed = [trial for trial in study.trials if trial.state is TrialState.FAIL]
    reasons = Counter((trial.failure or {}).get("reason", "unknown") for trial in failed)
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())


def left_text(ends: datetime | None, now: datetime) -> str:
    """The time until then: `about 3 min 20 s`, or nothing when it is not known."""
    if ends is None or pd.isna(ends):
        return ""
    return f"about {duration((ends - now).total_seconds())}" if ends > now else "any moment"


def best_text(study: StudyRecord, configurations: Sequence[ConfigurationRecord]) -> str:
    """The first objective's best mean among feasible, complete configurations, in words."""
    objective = study.objectives[0]
    able = [one for one in configurations if one.complete and one.feasible and objective.metric in one.metrics]
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
    return ConfigurationRows().frame(study, configurations)


def metrics_of(study: StudyRecord, configurations: Iterable[ConfigurationRecord]) -> list[str]:
    """Names of the metrics that some complete configuration has: the objectives, then others, loop diagnostics last."""
    known = set[str]().union(*(one.metrics for one in configurations if one.complete))
    objectives = [objective.metric for objective in study.objectives if objective.metric in known]
    return objectives + sorted(known.difference(objectives), key=lambda metric: (metric.startswith("loops/"), metric))


@dataclass(frozen=True)
class Column:
    """How a column of numbers is headed and written."""

    title: str
    format: str | None
    """None for text."""
    help: str | None = None


def display(
    frame: pd.DataFrame, search: Sequence[str], metrics: Sequence[str], most: int | None = None
) -> tuple[pd.DataFrame, dict[str, Column]]:
    """The configurations' table for people, those on the front first, and how its number columns are written.

    With `most`, only so many rows.

    A metric has two columns, mean and half-width of its interval, as numbers in a fitting unit, so that they sort; the
    second is left out while every configuration has one seed.
    """
    order = frame["standing"].map({name: position for position, name in enumerate(_STANDINGS)}).to_numpy()
    rows = frame.iloc[np.argsort(order, kind="stable")[:most]]
    shown = rows[["standing", *search, "seeds"]].copy()
    for name in search:
        shown[name] = [formats.plain(value) for value in shown[name]]
    config: dict[str, Column] = {
        name: Column(name, None, formats.TERMS[name]) for name in ("seeds", *search) if name in formats.TERMS
    }
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
    across, up = (
        values if direction == "minimize" else -values
        for values, direction in ((frame[x].to_numpy(float), x_direction), (frame[y].to_numpy(float), y_direction))
    )
    able = np.flatnonzero(frame["standing"].isin(["front", "dominated"]) & ~np.isnan(across) & ~np.isnan(up))
    able = able[np.lexsort((up[able], across[able]))]
    least = np.minimum.accumulate(up[able])
    best = able[np.diff(least, prepend=np.inf) < 0]
    return frame.iloc[best if x_direction == "minimize" else best[::-1]]


def parquet(frame: pd.DataFrame) -> bytes:
    """The table as a Parquet file; columns of mixed values, such as `learned` and 0.5, become text."""
    mixed = {
        name: frame[name].map(plain_or_none)
        for name in frame.columns
        if frame[name].dtype == object and frame[name].dropna().map(type).nunique() > 1
    }
    return frame.assign(**mixed).to_parquet(index=False)


def plain_or_none(value: object) -> str | None:
    """A value as text, and nothing as nothing."""
    return None if value is None else str(value)


def within(frame: pd.DataFrame, budgets: Mapping[str, float]) -> pd.DataFrame:
    """The table with what a reader would not spend marked `outside`; a value that is not known is outside, too."""
    kept = pd.Series(True, index=frame.index)
    for metric, bound in budgets.items():
        if metric in frame:
            kept &= frame[metric].astype(float) <= bound
    outside = frame["standing"].isin(["front", "dominated"]) & ~kept
    return frame.assign(standing=frame["standing"].mask(outside, "outside"))


def best_first(frame: pd.DataFrame, metric: str, direction: Direction) -> pd.DataFrame:
    """Feasible, complete configurations that are not outside, by one metric, the best first."""
    able = frame[frame["standing"].isin(["front", "dominated"])].dropna(subset=[metric])
    return able.sort_values(metric, ascending=direction == "minimize", kind="stable")


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


def failures_frame(study: StudyRecord) -> pd.DataFrame:
    """One row per failed trial, the newest first: which, why, and by which trial it was tried again."""
    again = {trial.retries: trial.number for trial in study.trials if trial.retries is not None}
    rows = [
        (
            trial.number,
            trial.failure.get("reason", "unknown"),
            trial.failure.get("message", ""),
            f"trial {again[trial.number]}" if trial.number in again else "",
        )
        for trial in reversed(study.trials)
        if trial.failure is not None
    ]
    return pd.DataFrame(rows, columns=["trial", "reason", "message", "tried again as"])


def running_frame(study: StudyRecord, live: LiveState) -> pd.DataFrame:
    """One row per running trial: how far its latest attempt is, and how fast."""
    rows = []
    for trial in study.trials:
        if trial.state is TrialState.RUNNING:
            rows.append(_running_row(trial, live.trials.get(trial.number)))
    return pd.DataFrame(rows, columns=["trial", "attempt", "configuration", "seed", "done", "tokens/s", "loss"])


def _running_row(trial: TrialRecord, live: LiveTrial | None) -> tuple[object, ...]:
    attempt = trial.attempts[-1].number if trial.attempts else 0
    known = live if live is not None and live.attempt == attempt else None
    return (
        trial.number,
        attempt,
        formats.configuration_label(trial.params),
        trial.seed,
        100 * known.step / known.steps if known is not None and known.steps else 0.0,
        round(known.tokens / known.seconds) if known is not None and known.seconds > 0 else None,
        known.metrics.get("train/loss") if known is not None else None,
    )


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


def files_frame(files: Iterable[LeftFile]) -> pd.DataFrame:
    """One row per file of a trial."""
    return pd.DataFrame([(str(one.path), byte_count(one.size)) for one in files], columns=["file", "size"])


def nodes_frame(state: ClusterState) -> pd.DataFrame:
    """One row per node of a Ray cluster."""
    rows = [
        (
            node.name,
            "head" if node.head else "worker",
            "alive" if node.alive else "dead",
            node.devices.get("CPU", 0.0),
            node.devices.get("GPU", 0.0),
            gib(node.devices.get("memory", 0.0)),
            node.why,
        )
        for node in state.nodes
    ]
    return pd.DataFrame(rows, columns=["node", "role", "state", "CPUs", "GPUs", "memory", "why"])


def actors_frame(state: ClusterState) -> pd.DataFrame:
    """One row per living actor of a Ray cluster."""
    rows = [
        (actor.kind, actor.state, actor.node, actor.pid, ", ".join(f"{v:g} {k}" for k, v in actor.needs.items()))
        for actor in state.actors
    ]
    return pd.DataFrame(rows, columns=["actor", "state", "node", "process", "reserves"])


def gib(size: float) -> str:
    """Bytes as GiB with one digit."""
    return f"{size / 2**30:.1f} GiB"
