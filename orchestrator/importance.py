"""Which searched parameters a metric depends on most, by Optuna's PED-ANOVA (Watanabe et al., 2023).

PED-ANOVA asks how differently a parameter is distributed among the best quarter of the trials and among all; it takes
milliseconds. A parameter that only applies to some points is judged among those, beside the ones that always apply.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial

from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would announce every study that is made in memory

_MOST = 1_000
"""Trials that are looked at, evenly spaced over the study."""
_FEWEST = 4
"""Trials below which nothing is said."""


@dataclass(frozen=True, kw_only=True)
class Importance:
    """One parameter's share."""

    param: str
    share: float
    """Of what the parameters judged beside each other explain, from 0 to 1."""
    trials: int
    """How many trials it was judged by."""
    always: bool
    """Whether it applies to every point."""


def importances(study: StudyRecord, metric: str, *, larger_is_better: bool = False) -> list[Importance]:
    """The searched parameters, the most important first; those with too few trials are left out.

    Complete trials count, feasible or not: what a parameter does is seen in both.
    """
    trials = [one for one in study.trials if one.state is TrialState.COMPLETE and metric in one.metrics]
    step = max(1, -(-len(trials) // _MOST))
    trials = trials[::step]
    always = [name for name in study.search if trials and all(name in trial.params for trial in trials)]
    sometimes = [name for name in study.search if name not in always]
    judge = _Judge(study, metric, larger_is_better)
    found = list(judge.shares(trials, always, always))
    for name in sometimes:
        found += judge.shares([trial for trial in trials if name in trial.params], [*always, name], [name])
    return sorted(found, key=lambda one: -one.share)


class _Judge:
    """Asks Optuna about some of a study's trials."""

    def __init__(self, study: StudyRecord, metric: str, larger_is_better: bool) -> None:
        self._space = SearchSpace(StudySpec.from_stored(study.spec))
        self._metric = metric
        self._direction: Literal["minimize", "maximize"] = "maximize" if larger_is_better else "minimize"

    def shares(self, trials: Sequence[TrialRecord], beside: Sequence[str], names: Iterable[str]) -> list[Importance]:
        """The shares of `names` among `beside`."""
        if len(trials) < _FEWEST or not beside:
            return []
        study = optuna.create_study(direction=self._direction, sampler=optuna.samplers.RandomSampler())
        study.add_trials([self._trial(trial, beside) for trial in trials])
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), params=list(beside))
        always = set(names) == set(beside)
        return [Importance(param=name, share=found[name], trials=len(trials), always=always) for name in names]

    def _trial(self, trial: TrialRecord, beside: Sequence[str]) -> optuna.trial.FrozenTrial:
        params = {name: trial.params[name] for name in beside}
        return create_trial(
            params=params, distributions=self._space.distributions(params), value=trial.metrics[self._metric]
        )
