"""What a study would do, told before it starts: its points, what is known to be infeasible, and what it costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from orchestrator.configuration import Configuration, resolve
from orchestrator.constraints import violated_constraints
from orchestrator.records import StudyRecord, TrialState
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec
from orchestrator.spec.points import extreme_points
from workers.config.counts import flops_per_token

_FEWEST = 3
"""Earlier trials from which a speed is told."""


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What is known beforehand. A number that is not known is None."""

    points: int | None
    """Distinct configurations of the search space; None when it is continuous or too large to list."""
    infeasible: int | None
    """Those of them that break a constraint on what is known without training; None with `points`."""
    planned: int
    """Configurations that will be trained at most: the budget, or what the space has."""
    seeds: int
    tokens: tuple[int, int]
    """Training tokens of one trial, the fewest and the most."""
    flops: tuple[float, float]
    """Training FLOPs of one trial, the fewest and the most."""
    device_seconds: float | None
    """Training time of everything on one device, from earlier trials' speed; None when there are too few."""
    speed_from: int
    """How many earlier trials that speed comes from."""

    @property
    def trials(self) -> int:
        """Trials at most."""
        return self.planned * self.seeds

    @property
    def most_tokens(self) -> int:
        """Training tokens of everything at most."""
        return self.trials * self.tokens[1]


def preview(spec: StudySpec, earlier: Iterable[StudyRecord] = ()) -> Preview:
    """Look at a study file; `earlier` studies tell how fast this machine trains.

    A space that cannot be listed is judged by its extreme points. Costs up to a second for 2,000 points.
    """
    listed = SearchSpace(spec).configurations
    configurations = listed or [resolve(spec, point) for point in extreme_points(spec)]
    infeasible = sum(1 for one in configurations if violated_constraints(spec.constraints, one.metrics_beforehand()))
    planned = spec.budget.configurations
    if listed is not None:
        planned = min(planned, len(listed) - infeasible)
    flops = [one.train.tokens * flops_per_token(one.model, one.data.seq_len) for one in configurations]
    mean = sum(flops) / len(flops)
    speeds = list(_speeds(earlier))
    known = len(speeds) >= _FEWEST
    return Preview(
        points=None if listed is None else len(listed),
        infeasible=None if listed is None else infeasible,
        planned=planned,
        seeds=len(spec.seeds),
        tokens=_ends(configurations),
        flops=(min(flops), max(flops)),
        device_seconds=planned * len(spec.seeds) * mean / median(speeds) if known else None,
        speed_from=len(speeds) if known else 0,
    )


def _ends(configurations: Iterable[Configuration]) -> tuple[int, int]:
    tokens = [one.train.tokens for one in configurations]
    return min(tokens), max(tokens)


def _speeds(studies: Iterable[StudyRecord]) -> Iterable[float]:
    """FLOPs per second of every COMPLETE trial that told what it trained and how long."""
    for study in studies:
        for trial in study.trials:
            seconds, flops = trial.metrics.get("train/seconds", 0.0), trial.metrics.get("train/flops", 0.0)
            if trial.state is TrialState.COMPLETE and seconds > 0 and flops > 0:
                yield flops / seconds
