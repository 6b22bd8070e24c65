"""Which configuration a study evaluates next: always one that it does not know yet.

The sampler sees a mirror of the study with one trial per configuration: means over its seeds as values, running ones
too. It is a new one for every proposal, seeded from the sampler's seed and the number of configurations so far, so that
a proposal is a function of the study file and what is known, and a study continued in another process proposes what
the unbroken one would have. What a sampler keeps in its trials (NSGA-II: their generation) is stored with them and
handed back.

When a sampler offers nothing new in a number of tries, a space that can be listed gives its first unknown point in an
order drawn from the seed, and another one is searched at random. Points that no model can have are passed over.

A proposer belongs to one thread, except for `guess`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import Any

import optuna
from optuna.samplers import BaseSampler, RandomSampler

from orchestrator.configuration import Configuration, resolve
from orchestrator.mirrored_study import MirroredStudy
from orchestrator.samplers import QUICK, Choice, choose, make_sampler, notice
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec
from orchestrator.tally import Tally
from workers.fingerprint import fingerprint

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would announce every mirror as a new study

_TRIES: Mapping[str, int] = {"gp": 3}
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
    stopped: bool = False
    """A pruner ended it; without values the sampler learns to stay away."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A configuration to evaluate."""

    configuration: Configuration
    sampler: str
    """Who made it: the study's sampler, or the one that stood in for it."""
    sampler_state: Mapping[str, Any] = field(default_factory=dict)

    def running(self) -> Evaluation:
        """How the sampler sees the configuration from now on until there is a result."""
        return Evaluation(
            fingerprint=self.configuration.fingerprint,
            params=self.configuration.params,
            values=None,
            violations={},
            running=True,
            sampler_state=self.sampler_state,
        )


class Proposer:
    """Proposes configurations of one study."""

    def __init__(self, spec: StudySpec, space: SearchSpace, choice: Choice | None = None) -> None:
        """`choice` replaces the study's own."""
        self.spec = spec
        self._space = space
        self._choice = choice or choose(spec, space.size)
        self._salt = [] if choice is None else [choice.sampler]
        self._mirrored: MirroredStudy | None = None
        self._tally = Tally()

    @property
    def sampler(self) -> str:
        """The sampler's name, decided when the file leaves it to us."""
        return self._choice.sampler

    @property
    def instant(self) -> bool:
        """Whether a proposal costs next to nothing and learns nothing, so that there is no use in making it early."""
        return self.sampler in ("grid", "random")

    @property
    def slow(self) -> bool:
        """Whether a proposal costs seconds."""
        return self.sampler == "gp"

    @property
    def notice(self) -> str | None:
        """What the person should know about this sampler on this study, in one line, or None."""
        return notice(self.sampler, self.spec)

    def stand_in(self) -> "Proposer":
        """One that takes milliseconds where this one takes seconds."""
        return Proposer(self.spec, self._space, QUICK)

    def propose(self, known: Sequence[Evaluation]) -> Proposal | None:
        """A configuration that is not among the known ones, or None when there seems to be none."""
        seed = self._seed(known, *self._salt)
        self._tally.follow(known)
        return self._choose(self._tally.fingerprints, seed, self._sampler_offers(known, seed))

    def guess(self, known: Sequence[Evaluation]) -> Proposal | None:
        """A random configuration that is not among the known ones, in a millisecond and from any thread, or None."""
        return self._choose({one.fingerprint for one in known}, self._seed(known, "guess"), ())

    def close(self) -> None:
        """Nothing to end here."""

    def _choose(self, taken: set[str], seed: int, offers: Iterable[Proposal]) -> Proposal | None:
        unknown = self._unknown(taken)
        if unknown == []:
            return None
        if self.sampler == "grid" and unknown is not None:
            return Proposal(configuration=unknown[0], sampler="grid")
        for proposal in chain(offers, () if unknown is not None else self._random_offers(seed)):
            if proposal.configuration.fingerprint not in taken:
                return proposal
        if unknown is None:
            return None
        return Proposal(configuration=Random(seed).choice(unknown), sampler="random")

    def _unknown(self, taken: set[str]) -> list[Configuration] | None:
        listed = self._space.configurations
        return None if listed is None else [one for one in listed if one.fingerprint not in taken]

    def _sampler_offers(self, known: Sequence[Evaluation], seed: int) -> Iterator[Proposal]:
        if self._mirrored is None:
            self._mirrored = self._new_mirror()
        self._mirrored.follow(known[self._first_seen(len(known)) :])
        sampler = make_sampler(self.sampler, self.spec, seed)
        yield from self._offers(self._mirrored, sampler, self.sampler, _TRIES.get(self.sampler, _SAMPLER_TRIES))

    def _random_offers(self, seed: int) -> Iterator[Proposal]:
        yield from self._offers(self._new_mirror(), RandomSampler(seed=seed), "random", _RANDOM_TRIES)

    def _offers(self, mirrored: MirroredStudy, sampler: BaseSampler, name: str, tries: int) -> Iterator[Proposal]:
        for _ in range(tries):
            trial = mirrored.ask(sampler)
            try:
                configuration = resolve(self.spec, self._space.suggest(trial))
            except ValueError:
                continue  # a combination inside ranges that no model can have; their ends were checked with the file
            yield Proposal(configuration=configuration, sampler=name, sampler_state=mirrored.state_of(trial))

    def _new_mirror(self) -> MirroredStudy:
        return MirroredStudy([objective.direction for objective in self.spec.objectives], self._space)

    def _first_seen(self, known: int) -> int:
        """Where the window begins. It moves by half its length at a time, so that the mirror is rarely made anew."""
        window = self._choice.window
        if window is None or known <= window:
            return 0
        step = window // 2
        return -(-(known - window) // step) * step

    def _seed(self, known: Sequence[Evaluation], *use: str) -> int:
        return int(fingerprint([self.spec.sampler.seed, len(known), *use])[:8], 16)
