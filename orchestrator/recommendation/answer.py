"""What a recommendation says, as plain frozen records."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.configurations import ConfigurationRecord
from orchestrator.records import Objective


class Verdict(StrEnum):
    """Whether going from one loop count to a larger one is worth it."""

    PAYS = "pays"
    """The gain is above what it must be, surely."""
    NO_GAIN = "does not pay"
    """The gain is not above what it must be, surely."""
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Bounds:
    """A gain, in the objective's unit and positive where better, with bounds as wide as the answer needs to be certain
    (`orchestrator.recommendation.rule`)."""

    estimate: float
    low: float
    """Minus infinity while nothing is known of the noise."""
    high: float


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What the best configuration of one loop count costs; None where it was not measured."""

    ms_per_token: float | None
    latency_ratio: float | None
    kv_bytes: float | None
    train_flops: float | None

    @property
    def latency(self) -> float | None:
        """By which loop counts compare: the ratio to no loops, which survives a noisy machine, else milliseconds."""
        return self.ms_per_token if self.latency_ratio is None else self.latency_ratio


@dataclass(frozen=True, kw_only=True)
class Step:
    """From one loop count to a larger one: the best configuration of each."""

    from_loops: int
    to_loops: int
    gain: Bounds
    worth: float
    """What the gain must be above: the least worthwhile gain of a loop, times the loops added."""
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The answer, its evidence, and how sure it is."""

    study: str
    question: str
    objective: Objective | None
    """What is gained: the first objective that training changes; None when no objective is one."""
    worth: float
    """The least gain that makes one more loop worthwhile, in the objective's unit."""
    level: float
    """At which an answer counts as certain: of 100 studies with a certain answer at 0.95, at most 5 are wrong."""
    where: tuple[str, ...]
    """Constraints beside the study's own."""
    loops: int | None = None
    """The answer; None when there is nothing to recommend, and `caveats` says why."""
    configuration: ConfigurationRecord | None = None
    """The configuration to take at that loop count."""
    as_good: tuple[ConfigurationRecord, ...] = ()
    """Others of that loop count that are not surely worse, by more than `worth`, the best first."""
    sure: bool = False
    """Whether the loop count is certain at `level`."""
    confidence: float = 0.0
    """The highest level at which it is certain; 0 when nothing is known of the noise."""
    further_seeds: int | None = None
    """How many further seeds of the configurations in `unsettled` would settle an answer that is not sure, if what was
    measured so far stays as it is; None when more than `MOST_SEEDS` would be needed."""
    unknown: tuple[ConfigurationRecord, ...] = ()
    """The most promising configuration of every loop count of which none was trained to the end."""
    unsettled: tuple[ConfigurationRecord, ...] = ()
    """The configurations whose further seeds can still change the answer."""
    best: Mapping[int, ConfigurationRecord] = field(default_factory=dict)
    """The configuration to take at each loop count that has one."""
    costs: Mapping[int, Costs] = field(default_factory=dict)
    """By loop count, of the configurations in `best`."""
    steps: tuple[Step, ...] = ()
    """From every loop count to every larger one."""
    noise: float | None = None
    """Standard deviation of the objective over seeds, pooled; None while unknown."""
    paired: bool = False
    """Whether differences are paired by seed."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Configurations that were not considered, by reason."""
    caveats: tuple[str, ...] = ()
    """What the answer does not cover, in sentences."""

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready; bounds that are infinite become None."""
        return {
            "study": self.study,
            "question": self.question,
            "objective": None if self.objective is None else asdict(self.objective),
            "worth_per_loop": self.worth,
            "level": self.level,
            "where": list(self.where),
            "num_loops": self.loops,
            "configuration": None if self.configuration is None else _configuration(self.configuration),
            "as_good": [_configuration(one) for one in self.as_good],
            "sure": self.sure,
            "confidence": self.confidence,
            "further_seeds": self.further_seeds,
            "unknown": [one.fingerprint for one in self.unknown],
            "unsettled": [one.fingerprint for one in self.unsettled],
            "by_loops": {
                str(loops): {"configuration": _configuration(one), "costs": asdict(self.costs[loops])}
                for loops, one in self.best.items()
            },
            "steps": [_step(step) for step in self.steps],
            "noise": self.noise,
            "paired_by_seed": self.paired,
            "left_out": dict(self.left_out),
            "caveats": list(self.caveats),
        }


def _configuration(one: ConfigurationRecord) -> dict[str, Any]:
    return {
        "fingerprint": one.fingerprint,
        "params": dict(one.params),
        "trials": [trial.number for trial in one.trials],
        "metrics": {name: asdict(interval) for name, interval in one.metrics.items()},
    }


def _step(step: Step) -> dict[str, Any]:
    bounds = {name: value if abs(value) != float("inf") else None for name, value in asdict(step.gain).items()}
    return {
        "from_loops": step.from_loops,
        "to_loops": step.to_loops,
        "gain": bounds,
        "worth": step.worth,
        "verdict": step.verdict.value,
    }
