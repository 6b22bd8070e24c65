"""Which configuration a study evaluates next: always one that it does not know yet.

The sampler sees an in-memory mirror of the study with one trial per configuration: means over its seeds as values,
running ones too. It is made anew for every proposal from the sampler's seed and the number of configurations so far, so
that a study continued in another process proposes what the unbroken one would have. What a sampler keeps in its trials
(NSGA-II: their generation) is stored with them and handed back.

When a sampler offers nothing new in a number of tries, a space that can be listed gives its first unknown point in an
order drawn from the seed, and another one is searched at random.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any

import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from orchestrator.configuration import Configuration, resolve
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec
from workers.fingerprint import fingerprint

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would announce every mirror as a new study

_SAMPLER_TRIES = 32
_RANDOM_TRIES = 256
"""When the sampler's tries found nothing and the space cannot be listed."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One configuration as the sampler sees it."""

    fingerprint: str
    params: Mapping[str, Any]
    values: tuple[float, ...] | None
    """Mean per objective; None while it runs or when it failed."""
    violations: Mapping[str, float]
    """Constraint to amount, positive when violated."""
    running: bool
    sampler_state: Mapping[str, Any]
    """What the sampler kept when it proposed the configuration."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A configuration to evaluate."""

    configuration: Configuration
    sampler_state: Mapping[str, Any]


class Proposer:
    """Proposes configurations of one study."""

    def __init__(self, spec: StudySpec, space: SearchSpace) -> None:
        self._spec, self._space = spec, space

    @property
    def sampler(self) -> str:
        """The sampler's name; `auto` is decided by whether every configuration fits the budget."""
        name = self._spec.sampler.name
        if name != "auto":
            return name
        size = self._space.size
        return "grid" if size is not None and size <= self._spec.budget.configurations else "tpe"

    def propose(self, known: Sequence[Evaluation]) -> Proposal | None:
        """A configuration that is not among the known ones, or None when there seems to be none."""
        fingerprints = {evaluation.fingerprint for evaluation in known}
        listed = self._space.configurations
        unknown = None if listed is None else [one for one in listed if one.fingerprint not in fingerprints]
        if unknown == []:
            return None
        if self.sampler == "grid" and unknown is not None:
            return Proposal(configuration=unknown[0], sampler_state={})
        for proposal in self._offers(known, listable=unknown is not None):
            if proposal.configuration.fingerprint not in fingerprints:
                return proposal
        if unknown is None:
            return None
        return Proposal(configuration=Random(self._seed(len(known))).choice(unknown), sampler_state={})

    def _offers(self, known: Sequence[Evaluation], *, listable: bool) -> Iterable[Proposal]:
        seed = self._seed(len(known))
        offers = self._draw(self._make_sampler(seed), known, _SAMPLER_TRIES)
        return offers if listable else chain(offers, self._draw(RandomSampler(seed=seed), known, _RANDOM_TRIES))

    def _draw(self, sampler: BaseSampler, known: Sequence[Evaluation], tries: int) -> Iterable[Proposal]:
        mirror = self._mirror(sampler, known)
        for _ in range(tries):
            trial = mirror.ask()
            try:
                configuration = resolve(self._spec, self._space.suggest(trial))
            except ValueError:
                continue  # a combination inside ranges that no model can have; their ends were checked with the file
            state = mirror.get_trials(deepcopy=False)[trial.number].system_attrs
            yield Proposal(configuration=configuration, sampler_state=dict(state))

    def _mirror(self, sampler: BaseSampler, known: Sequence[Evaluation]) -> optuna.Study:
        mirror = optuna.create_study(
            directions=[objective.direction for objective in self._spec.objectives], sampler=sampler
        )
        for evaluation in known:
            mirror.add_trial(
                create_trial(
                    state=_state(evaluation),
                    values=evaluation.values,
                    params=dict(evaluation.params),
                    distributions=self._space.distributions(evaluation.params),
                    system_attrs=dict(evaluation.sampler_state),
                    constraints=dict(evaluation.violations),
                )
            )
        return mirror

    def _make_sampler(self, seed: int) -> BaseSampler:
        if self.sampler == "tpe":
            return TPESampler(seed=seed)
        if self.sampler == "nsga2":
            population = min(50, max(4, self._spec.budget.configurations // 4))
            return NSGAIISampler(population_size=population, seed=seed)
        return RandomSampler(seed=seed)

    def _seed(self, known: int) -> int:
        return int(fingerprint([self._spec.sampler.seed, known])[:8], 16)


def _state(evaluation: Evaluation) -> TrialState:
    """Without values but known to break a constraint is PRUNED, from which samplers learn, unlike from FAIL."""
    if evaluation.running:
        return TrialState.RUNNING
    if evaluation.values is not None:
        return TrialState.COMPLETE
    return TrialState.PRUNED if evaluation.violations else TrialState.FAIL
