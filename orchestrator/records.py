"""What is known of a study and its trials, as plain frozen records.

They are what the command line prints, the dashboard draws, the tracker mirrors and `plt export` writes. The truth
behind them is the Optuna storage; nothing here touches it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal


class TrialState(StrEnum):
    """Optuna's five, nothing added."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAIL = "FAIL"

    @property
    def finished(self) -> bool:
        """Whether the trial will not change any more."""
        return self in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class StudyState(StrEnum):
    """How a study stands. RUNNING and PAUSED are only shown while a living driver holds the study's lock."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    INTERRUPTED = "INTERRUPTED"
    """Stopped or killed before its budget was spent; running it again continues it."""
    PAUSED = "PAUSED"
    """A living driver holds no device and waits to be told to go on."""
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One metric to minimise or maximise."""

    metric: str
    direction: Literal["minimize", "maximize"]


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """One execution of a trial."""

    number: int
    """1 for the first."""
    started: datetime
    ended: datetime | None = None
    failure: Mapping[str, str] | None = None
    """`reason`, `message` and `traceback` when it failed."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Hardware, versions, precision, counts."""
    devices: float = 1.0
    """What it reserved: GPUs, or 1 for each of its workers on the CPU."""

    @property
    def device_seconds(self) -> float:
        """What an ended attempt has cost."""
        return 0.0 if self.ended is None else (self.ended - self.started).total_seconds() * self.devices


@dataclass(frozen=True, kw_only=True)
class RungRecord:
    """How a trial stood when the pruner judged it."""

    tokens: int
    """The rung: training tokens seen."""
    metrics: Mapping[str, float]
    """What was known of the trial then."""
    order: int
    """Position among all judgements of the study, from 0."""
    kept: bool
    """Whether the trial went on."""


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One configuration with one seed."""

    number: int
    """From 0, unique in the study."""
    state: TrialState
    params: Mapping[str, Any]
    """The searched parameters that apply to this point, by name."""
    seed: int
    """The replicate's training seed."""
    configuration: str
    """Fingerprint of the configuration without its seed: replicates share it."""
    values: tuple[float, ...] | None
    """One per objective, in the study's order; None unless COMPLETE."""
    metrics: Mapping[str, float]
    """Every final metric by name."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    """The whole resolved configuration, flat: `num_loops`, `window`, `lr`, ... ."""
    feasible: bool = True
    """Whether every constraint is met; an infeasible trial never looks best."""
    violations: Mapping[str, float] = field(default_factory=dict)
    """Constraint text to amount; positive amounts are violated."""
    attempts: tuple[AttemptRecord, ...] = ()
    failure: Mapping[str, str] | None = None
    """Why the trial failed: `reason`, `message`, `traceback`."""
    started: datetime | None = None
    ended: datetime | None = None
    rungs: tuple[RungRecord, ...] = ()
    """How the pruner judged it, by tokens."""
    stopped_at: int | None = None
    """Training tokens at which the pruner stopped it; None for every other trial, whatever its state."""
    retries: int | None = None
    """The failed trial that this one repeats."""
    forked_from: str | None = None
    """`STUDY/NUMBER` of the trial that this one was taken over from."""
    sampler: Mapping[str, Any] = field(default_factory=dict)
    """What the sampler noted when it proposed the configuration."""
    proposed_by: str | None = None
    """Which sampler proposed the configuration; None for a trial that repeats another one."""


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """One study with all its trials."""

    name: str
    question: str
    state: StudyState
    objectives: tuple[Objective, ...]
    constraints: tuple[str, ...]
    search: tuple[str, ...]
    """Names of the searched parameters, in the file's order."""
    seeds: tuple[int, ...]
    spec: Mapping[str, Any]
    """The whole resolved study file as plain data."""
    budget: int
    """Distinct configurations that the study may evaluate in its whole life."""
    trials: tuple[TrialRecord, ...]
    created: datetime | None = None
    driver: str | None = None
    """`host:pid` of the living driver, if there is one."""
    message: str = ""
    """Why it ended, for instance `every point tried`."""
