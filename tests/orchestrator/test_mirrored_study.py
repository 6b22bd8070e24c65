"""A study that is followed change by change is the same to a sampler as one that is told all at once."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import optuna
import pytest
from optuna.samplers import GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from orchestrator.configuration import resolve
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.samplers import Choice
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec
from tests.orchestrator.evaluating import (
    ACCURACY,
    CONDITIONAL,
    CONTINUOUS,
    GENERATION,
    LOSS,
    MakeSpec,
    drive,
    evaluated,
    new_proposer,
)
from workers.fingerprint import fingerprint


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class History:
    """A study with several trials at a time that end in any order, some of them badly, some with further seeds."""

    def __init__(self, seed: int, *, objectives: int, constrained: bool) -> None:
        self.known: list[Evaluation] = []
        self._random, self._objectives, self._constrained = Random(seed), objectives, constrained

    def start(self, proposal: Proposal) -> None:
        self.known.append(proposal.running())

    def happen(self) -> None:
        """One running configuration ends, and perhaps another one gets a further seed, which moves its mean."""
        running = [at for at, one in enumerate(self.known) if one.running]
        at = self._random.choice(running)
        self.known[at] = self._ended(self.known[at])
        complete = [at for at, one in enumerate(self.known) if one.values is not None]
        if complete and self._random.random() < 0.3:
            again = self._random.choice(complete)
            self.known[again] = replace(self.known[again], values=self._values())

    def _ended(self, evaluation: Evaluation) -> Evaluation:
        fate = self._random.random()
        if fate < 0.1:
            return replace(evaluation, running=False)
        if fate < 0.2:
            return replace(evaluation, running=False, stopped=True)
        if fate < 0.3 and self._constrained:
            return replace(evaluation, running=False, violations={"x <= 1": 0.5})
        violations = {"x <= 1": self._random.uniform(-1, 1)} if self._constrained else {}
        return replace(evaluation, running=False, values=self._values(), violations=violations)

    def _values(self) -> tuple[float, ...]:
        return tuple(self._random.random() for _ in range(self._objectives))


def of_plain_optuna(spec: StudySpec, known: Sequence[Evaluation], seed: int) -> dict[str, Any] | None:
    """What Optuna's own sampler and storage say to the same study, told all at once; None when it is known already."""
    space = SearchSpace(spec)
    study = optuna.create_study(directions=[one.direction for one in spec.objectives])
    for one in known:
        ended = TrialState.PRUNED if one.stopped or one.violations else TrialState.FAIL
        told = TrialState.COMPLETE if one.values is not None else ended
        study.add_trial(
            create_trial(
                state=TrialState.RUNNING if one.running else told,
                values=one.values,
                params=dict(one.params),
                distributions=space.distributions(one.params),
                system_attrs=dict(one.sampler_state),
                constraints=dict(one.violations),
            )
        )
    study.sampler = {
        "tpe": lambda: TPESampler(seed=seed),
        "nsga2": lambda: NSGAIISampler(seed=seed, population_size=10),
        "gp": lambda: GPSampler(
            seed=seed,
            independent_sampler=TPESampler(seed=seed, multivariate=False),
            warn_independent_sampling=False,
        ),
        "random": lambda: RandomSampler(seed=seed),
    }[spec.sampler.name]()
    if isinstance(study.sampler, NSGAIISampler):  # chosen when a generation began
        for generation in range(1, 1 + max((one.sampler_state[GENERATION] for one in known), default=0)):
            study.sampler.get_parent_population(study, generation)
    configuration = resolve(spec, space.suggest(study.ask()))
    taken = configuration.fingerprint in {one.fingerprint for one in known}
    return None if taken else dict(configuration.params)


@pytest.mark.parametrize("objectives", [[LOSS], [LOSS, ACCURACY]], ids=["one", "two"])
@pytest.mark.parametrize("constrained", [False, True], ids=["free", "constrained"])
@pytest.mark.parametrize(("sampler", "steps"), [("tpe", 60), ("nsga2", 90), ("random", 20), ("gp", 14)])
def test_a_followed_study_is_the_same_as_one_told_all_at_once(
    make_spec: MakeSpec, sampler: str, steps: int, objectives: list[Any], constrained: bool
) -> None:
    """With four trials at a time; as by a new proposer, and as by Optuna itself."""
    spec = make_spec(
        sampler={"name": sampler, "seed": 5},
        search=CONDITIONAL,
        objectives=objectives,
        budget={"configurations": 40},
    )
    history = History(7, objectives=len(objectives), constrained=constrained)
    following = new_proposer(spec)
    compared = 0
    for step in range(steps):
        proposal = following.propose(history.known)
        assert proposal is not None
        if sampler != "gp" or step >= 12:
            assert new_proposer(spec).propose(history.known) == proposal
            seed = int(fingerprint([5, len(history.known)])[:8], 16)
            plain = of_plain_optuna(spec, history.known, seed)
            compared += plain is not None
            assert plain in (None, dict(proposal.configuration.params))
        history.start(proposal)
        if step >= 3:
            history.happen()
    assert compared >= 2
    known = history.known
    for shorter in (known[:-3], known[::-1], known[5:], []):
        assert following.propose(shorter) == new_proposer(spec).propose(shorter)


def test_what_other_samplers_proposed_is_a_generation_of_nsga2(make_spec: MakeSpec) -> None:
    """So that a study whose budget grew goes on from its best configurations, not from random ones."""
    few = make_spec(search=CONTINUOUS, sampler={"name": "random"}, budget={"configurations": 100})
    known: list[Evaluation] = []
    list(islice(drive(new_proposer(few), known), 100))
    spec = make_spec(search=CONTINUOUS, sampler={"name": "nsga2"}, budget={"configurations": 100})
    proposer = new_proposer(spec)
    rates = {one.params["lr"] for one in known}
    inherited = 0
    for _ in range(20):
        proposal = proposer.propose(known)
        assert proposal is not None
        assert proposal.sampler_state[GENERATION] == 1
        inherited += proposal.configuration.train.lr in rates
        known.append(proposal.running())
    assert inherited >= 2  # crossover hands values on; a random draw never meets one


def test_a_windowed_sampler_forgets_what_is_long_ago(make_spec: MakeSpec) -> None:
    """Only the latest 50 to 100 configurations count, and they count as in a study of their own."""
    spec = make_spec(search=CONTINUOUS, sampler={"name": "tpe", "seed": 2}, objectives=[LOSS])
    proposer = Proposer(spec, SearchSpace(spec), Choice(sampler="tpe", window=100))
    known = list[Evaluation]()
    for _ in range(160):
        proposal = proposer.guess(known)
        assert proposal is not None
        known.append(evaluated(proposal, values=(proposal.configuration.train.lr,)))
    changed = [replace(one, values=(0.0,)) for one in known[:60]]
    assert proposer.propose(known) == proposer.propose([*changed, *known[60:]])
    assert proposer.propose(known) != proposer.propose(
        [*known[:100], *(replace(one, values=(9.0,)) for one in known[100:])]
    )


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_a_stopped_configuration_decides_what_tpe_models_together(make_spec: MakeSpec, sampler: str) -> None:
    """All that ended well have a window, and the stopped one has none; tpe learns from both, nsga2 does not."""
    spec = make_spec(
        sampler={"name": sampler, "seed": 5}, search=CONDITIONAL, objectives=[LOSS], budget={"configurations": 40}
    )
    random, known = new_proposer(spec), list[Evaluation]()
    while len(known) < 30:
        proposal = random.guess(known)
        assert proposal is not None
        one = replace(proposal.running(), sampler_state={GENERATION: 0} if sampler == "nsga2" else {})
        if len(known) == 4 and "window" not in one.params:
            known.append(replace(one, running=False, stopped=True))
        elif len(known) != 4 and "window" in one.params:
            known.append(replace(one, running=False, values=(one.params["lr"],)))
        else:
            known.append(replace(one, running=True))
    assert any(one.stopped for one in known)
    proposal = new_proposer(spec).propose(known)
    assert proposal is not None
    plain = of_plain_optuna(spec, known, int(fingerprint([5, len(known)])[:8], 16))
    assert plain == dict(proposal.configuration.params)
