"""What a study's trials say about its configurations: for the sampler, and for who gets another seed."""

from collections.abc import Sequence
from itertools import islice
from statistics import fmean

from orchestrator.proposer import Evaluation
from orchestrator.recommendation.seeds import wanted_by_the_answer
from orchestrator.records import Objective, StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.replicates import same_for_all_seeds
from orchestrator.replication import Replicated, worth_another_seed
from orchestrator.spec import StudySpec
from orchestrator.trial_table import TrialTable
from workers.protocol import FailureReason

_TELLING = frozenset({FailureReason.DIVERGED.value, FailureReason.GPU_OOM.value})
"""Failures that say something about the configuration, so that the sampler learns to stay away."""


class Knowledge:
    """Judges the configurations of a `TrialTable`; tell it which of them changed."""

    def __init__(self, spec: StudySpec, table: TrialTable) -> None:
        self._spec, self._table = spec, table
        self._signs = [1 if objective.direction == "minimize" else -1 for objective in spec.objectives]
        self._exact = [same_for_all_seeds(objective.metric) for objective in spec.objectives]
        self._evaluations: list[Evaluation] = []
        self._positions: dict[str, int] = {}
        self._changed: set[str] = set()

    def changed(self, configuration: str) -> None:
        """One of its trials is new or stands otherwise."""
        self._changed.add(configuration)

    def evaluations(self) -> list[Evaluation]:
        """Every configuration in the order of asking; the same object as before where nothing changed."""
        for configuration in islice(self._table.configurations, len(self._evaluations), None):
            self._positions[configuration] = len(self._evaluations)
            self._evaluations.append(_evaluate(self._table.replicates(configuration)))
            self._changed.discard(configuration)
        for configuration in self._changed:
            self._evaluations[self._positions[configuration]] = _evaluate(self._table.replicates(configuration))
        self._changed.clear()
        return list(self._evaluations)

    def next_replicate(self) -> tuple[TrialRecord, int] | None:
        """A trial of the configuration that needs another seed most, and that seed; None when none needs one."""
        if len(self._spec.seeds) == 1:
            return None
        for configuration in self._wanted():
            seed = self._missing_seed(configuration)
            if seed is not None:
                return self._table.replicates(configuration)[0], seed
        return None

    def with_fewer_seeds(self) -> int:
        """How many configurations with a value, feasible ones, were not run with every seed."""
        return sum(self._missing_seed(configuration) is not None for configuration in self._replicable())

    def _wanted(self) -> list[str]:
        """Configurations that deserve another seed, the most urgent first."""
        if self._spec.replicate == "answer":
            return wanted_by_the_answer(self._as_record())
        candidates = [self._replicated(configuration) for configuration in self._replicable()]
        return worth_another_seed(candidates, self._exact, everyone=self._spec.replicate == "all")

    def _as_record(self) -> StudyRecord:
        """What a recommendation is made from."""
        return StudyRecord(
            name=self._spec.name,
            question=self._spec.question,
            state=StudyState.RUNNING,
            objectives=tuple(Objective(metric=one.metric, direction=one.direction) for one in self._spec.objectives),
            constraints=self._spec.constraints,
            search=tuple(self._spec.search),
            seeds=self._spec.seeds,
            spec={},
            budget=self._spec.budget.configurations,
            trials=self._table.all(),
        )

    def _missing_seed(self, configuration: str) -> int | None:
        used = {trial.seed for trial in self._table.replicates(configuration)}
        return next((seed for seed in self._spec.seeds if seed not in used), None)

    def _replicable(self) -> list[str]:
        """Configurations that have a value and break no constraint on average, in the order of asking."""
        return [
            known.fingerprint
            for known in self.evaluations()
            if known.values is not None and all(amount <= 0 for amount in known.violations.values())
        ]

    def _replicated(self, configuration: str) -> Replicated:
        trials = self._table.replicates(configuration)
        costs = tuple(
            tuple(sign * value for sign, value in zip(self._signs, trial.values, strict=True))
            for trial in trials
            if trial.values is not None
        )
        return Replicated(fingerprint=configuration, costs=costs, seeds=len(trials))


def _evaluate(replicates: Sequence[TrialRecord]) -> Evaluation:
    """A configuration as the sampler sees it: means over its COMPLETE seeds."""
    complete = [trial for trial in replicates if trial.state is TrialState.COMPLETE]
    judged = complete or [trial for trial in replicates if trial.state is TrialState.PRUNED]
    reasons = {trial.failure["reason"] if trial.failure else "" for trial in replicates}
    return Evaluation(
        fingerprint=replicates[0].configuration,
        params=replicates[0].params,
        values=_means([trial.values or () for trial in complete]) if complete else None,
        violations={"failed": 1.0} if reasons <= _TELLING else _mean_violations(judged),
        running=not complete and any(not trial.state.finished for trial in replicates),
        sampler_state=replicates[0].sampler,
        stopped=not complete and any(trial.stopped_at is not None for trial in replicates),
    )


def _mean_violations(trials: Sequence[TrialRecord]) -> dict[str, float]:
    names = trials[0].violations if trials else ()
    return {name: fmean(trial.violations[name] for trial in trials) for name in names}


def _means(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(fmean(column) for column in zip(*rows, strict=True))
