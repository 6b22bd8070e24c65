"""The study as its sampler sees it, kept up to date instead of made anew: one trial per configuration.

`follow` takes what is known and replaces only what differs from before, so what it leads to depends on what is known
and not on the way there. NSGA-II keeps the generation of a trial in its attributes, and the parents of every generation
with the study; parents are forgotten as soon as a trial of an earlier generation is another one, because choosing them
again would give others. A configuration without a generation (another sampler proposed it) belongs to that of the one
asked before it.
"""

from collections import Counter
from collections.abc import Sequence
from operator import is_not
from typing import TYPE_CHECKING, Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from orchestrator.mirror import Mirror
from orchestrator.search_space import SearchSpace

if TYPE_CHECKING:
    from orchestrator.proposer import Evaluation

Direction = Literal["minimize", "maximize"]

_GENERATION = f"{NSGAIISampler.__name__}:generation"
_PARENTS = f"{NSGAIISampler.__name__}:parent:"
"""Where Optuna keeps them."""


class MirroredStudy:
    """Asks samplers on behalf of a study; belongs to one thread."""

    def __init__(self, directions: Sequence[Direction], space: SearchSpace) -> None:
        self._space = space
        self._mirror = Mirror()
        self._study = optuna.create_study(storage=self._mirror, directions=list(directions))
        self._known: list[Evaluation] = []
        self._generations: list[int] = []
        self._parents_of = 0
        """Parents are chosen up to this generation, perhaps also for the next one."""
        self._states: Counter[TrialState] = Counter()
        self._params: Counter[tuple[TrialState, str]] = Counter()

    def follow(self, known: Sequence["Evaluation"]) -> None:
        """Make the trials those of the known configurations, in this order."""
        self._drop(min(len(known), len(self._known)))
        for position, other in enumerate(list(map(is_not, self._known, known))):
            if other:
                self._change(position, known[position])
        for evaluation in known[len(self._known) :]:
            self._put(len(self._known), evaluation)

    def ask(self, sampler: BaseSampler) -> Trial:
        """A trial to suggest parameters from; the one asked before is forgotten."""
        self._mirror.cut(len(self._known))
        self._study.sampler = _Informed(sampler, self._shared_by(sampler), self._new_generations())
        return self._study.ask()

    def state_of(self, trial: Trial) -> dict[str, Any]:
        """What the sampler keeps with an asked trial."""
        return dict(self._mirror.get_trial(trial.number).system_attrs)

    def _drop(self, length: int) -> None:
        for position in range(length, len(self._known)):
            self._count(self._mirror.get_trial(position), -1, self._generations[position])
        self._mirror.cut(length)
        del self._known[length:], self._generations[length:]

    def _change(self, position: int, evaluation: "Evaluation") -> None:
        """Also the following ones that have this one's generation, when it is another one now."""
        if self._known[position] == evaluation:
            self._known[position] = evaluation
            return
        self._put(position, evaluation)
        for following in range(position + 1, len(self._known)):
            if self._generations[following] == self._generation(following, self._known[following]):
                break
            self._put(following, self._known[following])

    def _generation(self, position: int, evaluation: "Evaluation") -> int:
        before = self._generations[position - 1] if position else 0
        generation: int = evaluation.sampler_state.get(_GENERATION, before)
        return generation

    def _put(self, position: int, evaluation: "Evaluation") -> None:
        if position < len(self._known):
            self._count(self._mirror.get_trial(position), -1, self._generations[position])
        generation = self._generation(position, evaluation)
        trial = create_trial(
            state=_state(evaluation),
            values=evaluation.values,
            params=dict(evaluation.params),
            distributions=self._space.distributions(evaluation.params),
            system_attrs={**evaluation.sampler_state, _GENERATION: generation},
            constraints=dict(evaluation.violations),
        )
        self._mirror.put(position, trial)
        self._known[position : position + 1] = [evaluation]
        self._generations[position : position + 1] = [generation]
        self._count(trial, 1, generation)

    def _count(self, trial: FrozenTrial, times: int, generation: int) -> None:
        """A trial comes (1) or goes (-1)."""
        self._states[trial.state] += times
        for name in trial.params:
            self._params[trial.state, name] += times
        if trial.state is TrialState.COMPLETE:
            self._forget_parents(generation)

    def _forget_parents(self, generation: int) -> None:
        """All that were chosen after this generation."""
        if generation <= self._parents_of:
            later = range(generation + 1, self._parents_of + 2)
            self._mirror.forget_study_system_attrs([f"{_PARENTS}{one}" for one in later])
            self._parents_of = generation

    def _new_generations(self) -> range:
        """Those whose parents must be chosen now. The next one's are up to the sampler, when it begins one."""
        latest = max(self._generations, default=0)
        self._forget_parents(latest)
        missing = range(self._parents_of + 1, latest + 1)
        self._parents_of = latest
        return missing

    def _shared_by(self, sampler: BaseSampler) -> dict[str, BaseDistribution] | None:
        """The parameters that a sampler models together, those of every trial it learns from; None: it says itself.

        Optuna would compare all parameters of all trials for it.
        """
        if isinstance(sampler, NSGAIISampler | GPSampler):
            states = [TrialState.COMPLETE]
        elif isinstance(sampler, TPESampler) and len(self._study.directions) == 1:
            states = [TrialState.COMPLETE, TrialState.PRUNED]
        else:
            return None
        number = sum(self._states[state] for state in states)
        names = {name for _, name in self._params}
        shared = [name for name in names if number == sum(self._params[state, name] for state in states) > 0]
        found = self._space.distributions(dict.fromkeys(sorted(shared)))
        return {name: distribution for name, distribution in found.items() if not distribution.single()}


class _Informed(BaseSampler):
    """A sampler that is told which parameters to model together.

    NSGA-II chooses parents generation by generation; left alone, it would go back through all of them in one recursion.
    """

    def __init__(
        self, sampler: BaseSampler, shared: dict[str, BaseDistribution] | None, generations: Sequence[int]
    ) -> None:
        self._sampler, self._shared, self._generations = sampler, shared, generations

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        if self._shared is None:
            return self._sampler.infer_relative_search_space(study, trial)
        return self._shared

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler.before_trial(study, trial)
        if isinstance(self._sampler, NSGAIISampler):
            for generation in self._generations:
                self._sampler.get_parent_population(study, generation)


def _state(evaluation: "Evaluation") -> TrialState:
    """Stopped early, or known to break a constraint without values, is PRUNED: tpe learns from it, unlike from FAIL."""
    if evaluation.running:
        return TrialState.RUNNING
    if evaluation.values is not None:
        return TrialState.COMPLETE
    return TrialState.PRUNED if evaluation.stopped or evaluation.violations else TrialState.FAIL
