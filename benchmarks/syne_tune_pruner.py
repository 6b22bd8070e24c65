"""Syne Tune's MOASHA behind our pruner protocol, for comparison. Needs `pip install -e '.[benchmarks]'`.

Its scheduler decides only; who proposes is ours, so both see the same configurations in the same order. It orders a
front by an epsilon-net, lets a trial go on whose share of better ones is at most 1 / reduction_factor, and draws
brackets from NumPy's global generator, so there is one bracket here.
"""

from collections.abc import Sequence

from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer.scheduler import SchedulerDecision
from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

from orchestrator.pruning import RungEntry


class SyneTunePruner:
    """One study's scheduler; it keeps state, so every study needs its own."""

    def __init__(self, rungs: Sequence[int], tokens_total: int, reduction_factor: float, objectives: int) -> None:
        self._rungs = tuple(rungs)
        self._names = [f"cost{position}" for position in range(objectives)]
        self._scheduler = MOASHA(
            config_space={},
            metrics=self._names,
            time_attr="tokens",
            max_t=tokens_total,
            grace_period=self._rungs[0],
            reduction_factor=reduction_factor,
        )
        self._trials: dict[int, Trial] = {}

    def rungs(self, tokens_total: int) -> tuple[int, ...]:  # noqa: ARG002
        """Ours, so that both judge the same evaluations."""
        return self._rungs

    def keeps(self, number: int, rung: int, entries: Sequence[RungEntry]) -> bool:
        """What the scheduler says to the last entry."""
        return self._scheduler.on_trial_result(self._trial(number), self._result(rung, entries[-1])) in (
            SchedulerDecision.CONTINUE,
        )

    def _trial(self, number: int) -> Trial:
        if number not in self._trials:
            self._trials[number] = Trial(trial_id=number, config={}, creation_time=None)
            self._scheduler.on_trial_add(self._trials[number])
        return self._trials[number]

    def _result(self, tokens: int, entry: RungEntry) -> dict[str, float]:
        return {"tokens": tokens, **dict(zip(self._names, entry.costs, strict=True))}
