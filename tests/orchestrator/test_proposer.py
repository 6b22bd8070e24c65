"""Proposals are new, finite spaces are exhausted exactly, and a continued study proposes what an unbroken one does."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from statistics import fmean
from typing import Any

import optuna
import pytest
from optuna.samplers import GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from orchestrator.configuration import Configuration, resolve
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.samplers import Choice
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec
from workers.fingerprint import fingerprint

MakeSpec = Callable[..., StudySpec]
SAMPLERS = ["tpe", "nsga2", "random", "grid"]
CONTINUOUS = {"num_loops": {"choices": [1, 2, 3]}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}
CONDITIONAL = {
    "num_loops": {"choices": [1, 2, 3]},
    "window": {"choices": [8, 16, 32], "when": {"num_loops": ">1"}},
    "hidden_scale": {"low": 0.1, "high": 1.0, "when": {"num_loops": ">1"}},
    "batch_size": {"low": 8, "high": 8},
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
}
SLIDING = {"choices": [8, 16], "when": {"local": "swa"}}
LOSS = {"metric": "val/loss", "direction": "minimize"}
GENERATION = "NSGAIISampler:generation"
ACCURACY = {"metric": "val/accuracy", "direction": "maximize"}


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def evaluated(proposal: Proposal, **changes: Any) -> Evaluation:
    """Best with three loops and a learning rate of 3e-3."""
    configuration = proposal.configuration
    loops, rate = configuration.model.num_loops, configuration.train.lr
    outcome: dict[str, Any] = {
        "values": (1 / loops + abs(math.log10(rate / 3e-3)), loops / 4),
        "violations": {},
        "running": False,
    }
    return Evaluation(
        fingerprint=configuration.fingerprint,
        params=configuration.params,
        sampler_state=proposal.sampler_state,
        **{**outcome, **changes},
    )


def drive(proposer: Proposer, known: list[Evaluation]) -> Iterator[Configuration]:
    """Evaluate one proposal after the other until there are none."""
    while (proposal := proposer.propose(known)) is not None:
        known.append(evaluated(proposal))
        yield proposal.configuration


def new_proposer(spec: StudySpec) -> Proposer:
    return Proposer(spec, SearchSpace(spec))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_finite_space_is_exhausted_without_repetition(make_spec: MakeSpec, sampler: str) -> None:
    spec = make_spec(sampler={"name": sampler, "seed": 3})
    points = SearchSpace(spec).points()
    assert points is not None
    proposed = [dict(one.params) for one in drive(new_proposer(spec), [])]
    assert len(proposed) == len(points) == 9
    assert sorted(map(repr, proposed)) == sorted(map(repr, points))
    assert (proposed == points) is (sampler == "grid")


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
@pytest.mark.parametrize("cut", [1, 9, 13])
def test_a_continued_study_proposes_what_the_unbroken_one_does(make_spec: MakeSpec, sampler: str, cut: int) -> None:
    spec = make_spec(sampler={"name": sampler, "seed": 1}, search=CONTINUOUS, budget={"configurations": 16})
    whole = list(islice(drive(new_proposer(spec), []), 16))
    known: list[Evaluation] = []
    first = list(islice(drive(new_proposer(spec), known), cut))
    rest = list(islice(drive(new_proposer(spec), known), 16 - cut))
    assert first + rest == whole


def test_a_continued_study_of_gp_proposes_what_the_unbroken_one_does(make_spec: MakeSpec) -> None:
    spec = make_spec(sampler={"name": "gp", "seed": 1}, search=CONTINUOUS, objectives=[LOSS])
    known: list[Evaluation] = []
    proposer = new_proposer(spec)
    for _ in range(12):
        proposal = proposer.propose(known)
        assert proposal is not None
        known.append(evaluated(proposal, values=(proposal.configuration.train.lr,)))
    assert new_proposer(spec).propose(known[:11]) == proposal


def test_seeds_differ(make_spec: MakeSpec) -> None:
    specs = [make_spec(sampler={"name": "random", "seed": seed}, search=CONTINUOUS) for seed in (0, 1)]
    one, other = ([found.train.lr for found in islice(drive(new_proposer(spec), []), 5)] for spec in specs)
    assert not set(one) & set(other)


def test_tpe_learns(make_spec: MakeSpec) -> None:
    """Later proposals come closer to the best learning rate than the ten random ones that each study begins with."""
    early, late = list[float](), list[float]()
    for seed in range(3):
        spec = make_spec(
            sampler={"name": "tpe", "seed": seed},
            search={"lr": {"low": 1e-5, "high": 1.0, "log": True}},
            objectives=[{"metric": "val/loss", "direction": "minimize"}],
        )
        proposer, known = new_proposer(spec), list[Evaluation]()
        for _ in range(40):
            proposal = proposer.propose(known)
            assert proposal is not None
            distance = abs(math.log10(proposal.configuration.train.lr / 3e-3))
            (early if len(known) < 10 else late).append(distance)
            known.append(evaluated(proposal, values=(distance,)))
    assert fmean(late) < 0.7 * fmean(early)


def test_tpe_stays_away_from_what_broke_a_constraint(make_spec: MakeSpec) -> None:
    """Learning rates above 1e-3 are infeasible before they have values."""
    spec = make_spec(sampler={"name": "tpe"}, search={"lr": {"low": 1e-5, "high": 1e-1, "log": True}})
    proposer, known = new_proposer(spec), list[Evaluation]()
    for _ in range(40):
        proposal = proposer.propose(known)
        assert proposal is not None
        bad = proposal.configuration.train.lr > 1e-3
        known.append(evaluated(proposal, values=None, violations={"x <= 1": 1.0}) if bad else evaluated(proposal))
    broken = [evaluation.values is None for evaluation in known]
    assert sum(broken[:10]) >= 3
    assert sum(broken[-20:]) < 2 * sum(broken[:10])


@pytest.mark.parametrize(("budget", "sampler"), [(8, "tpe"), (9, "grid"), (50, "grid"), (5000, "grid")])
def test_auto_is_a_grid_when_every_configuration_fits(make_spec: MakeSpec, budget: int, sampler: str) -> None:
    assert new_proposer(make_spec(budget={"configurations": budget})).sampler == sampler


@pytest.mark.parametrize("objectives", [[LOSS], [LOSS, ACCURACY]], ids=["one", "two"])
def test_auto_is_tpe_in_a_continuous_space(make_spec: MakeSpec, objectives: list[Any]) -> None:
    """It proposes what tpe does, and says so."""
    specs = [make_spec(search=CONTINUOUS, sampler={"name": name}, objectives=objectives) for name in ("auto", "tpe")]
    known: list[Evaluation] = []
    for _ in range(15):
        auto, tpe = (new_proposer(spec).propose(known) for spec in specs)
        assert auto == tpe
        assert auto is not None
        assert auto.sampler == "tpe"
        known.append(evaluated(auto, values=(auto.configuration.train.lr, 0.5)[: len(objectives)]))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_running_and_failed_configurations_are_not_proposed_again(make_spec: MakeSpec, sampler: str) -> None:
    proposer, known = new_proposer(make_spec(sampler={"name": sampler})), list[Evaluation]()
    for index in range(9):
        proposal = proposer.propose(known)
        assert proposal is not None
        known.append(evaluated(proposal, values=None, running=index % 2 == 0))
    assert len({evaluation.fingerprint for evaluation in known}) == 9
    assert proposer.propose(known) is None


def test_a_continuous_space_of_one_configuration_comes_to_an_end(make_spec: MakeSpec) -> None:
    """With one loop no scale matters, but the space is continuous all the same."""
    search = {"num_loops": {"choices": [1]}, "hidden_scale": {"low": 0.1, "high": 1.0}}
    assert len(list(drive(new_proposer(make_spec(search=search, sampler={"name": "tpe"})), []))) == 1


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


def test_tpe_stays_away_from_what_a_pruner_stopped(make_spec: MakeSpec) -> None:
    spec = make_spec(sampler={"name": "tpe"}, search={"lr": {"low": 1e-5, "high": 1e-1, "log": True}})
    proposer, known = new_proposer(spec), list[Evaluation]()
    for _ in range(40):
        proposal = proposer.propose(known)
        assert proposal is not None
        stopped = proposal.configuration.train.lr > 1e-3
        known.append(evaluated(proposal, values=None, stopped=True) if stopped else evaluated(proposal))
    bad = [evaluation.stopped for evaluation in known]
    assert sum(bad[:10]) >= 3
    assert sum(bad[-20:]) < 2 * sum(bad[:10])


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "gp", "random", "auto"])
def test_twelve_points_and_a_budget_of_forty_are_twelve_evaluations(make_spec: MakeSpec, sampler: str) -> None:
    search = {
        "num_loops": {"choices": [2, 3, 4]},
        "window": {"choices": [16, 32]},
        "gate_mode": {"choices": ["learned", 0.5]},
    }
    spec = make_spec(search=search, sampler={"name": sampler}, budget={"configurations": 40})
    assert len({one.fingerprint for one in drive(new_proposer(spec), [])}) == 12


@pytest.mark.parametrize("sampler", [*SAMPLERS, "gp", "auto"])
@pytest.mark.parametrize(
    ("search", "points"),
    [
        ({"lr": {"low": 3e-3, "high": 3e-3}}, 1),
        ({"lr": {"low": 3e-3, "high": 3e-3, "log": True}, "batch_size": {"low": 8, "high": 8}}, 1),
        ({"num_loops": {"choices": [2]}}, 1),
        ({}, 1),
        ({"num_loops": {"choices": [2]}, "window": {"choices": [8, 16]}, "lr": {"low": 3e-3, "high": 3e-3}}, 2),
    ],
)
def test_parameters_of_one_value_run(make_spec: MakeSpec, sampler: str, search: dict[str, Any], points: int) -> None:
    spec = make_spec(search=search, sampler={"name": sampler})
    assert len(list(drive(new_proposer(spec), []))) == points


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random", "gp"])
def test_a_parameter_of_one_value_beside_a_continuous_one(make_spec: MakeSpec, sampler: str) -> None:
    search = {"batch_size": {"low": 8, "high": 8}, "num_loops": {"choices": [2]}, "lr": {"low": 1e-4, "high": 1e-1}}
    spec = make_spec(search=search, sampler={"name": sampler}, budget={"configurations": 14})
    found = list(islice(drive(new_proposer(spec), []), 14))
    assert len({one.train.lr for one in found}) == 14
    assert {(one.train.batch_size, one.model.num_loops) for one in found} == {(8, 2)}


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_combinations_that_no_model_can_have_are_never_proposed(make_spec: MakeSpec, sampler: str) -> None:
    """The width must be a multiple of the number of heads, which only its ends are for every choice."""
    search = {
        "d_model": {"low": 64, "high": 4096},
        "num_heads": {"choices": [4, 16]},
        "lr": {"low": 1e-4, "high": 1e-1},
    }
    model = {"variant": "plt", "num_layers": 2}
    spec = make_spec(model=model, search=search, sampler={"name": sampler}, budget={"configurations": 30})
    found = list(islice(drive(new_proposer(spec), []), 30))
    assert len({one.fingerprint for one in found}) == 30
    assert all(one.model.hidden_size % one.model.num_attention_heads == 0 for one in found)
    assert sum(one.model.hidden_size not in (64, 4096) for one in found) > 20


def test_gp_learns(make_spec: MakeSpec) -> None:
    spec = make_spec(sampler={"name": "gp"}, search={"lr": {"low": 1e-5, "high": 1.0, "log": True}}, objectives=[LOSS])
    proposer, known = new_proposer(spec), list[Evaluation]()
    distances = list[float]()
    for _ in range(16):
        proposal = proposer.propose(known)
        assert proposal is not None
        assert proposal.sampler == "gp"
        distances.append(abs(math.log10(proposal.configuration.train.lr / 3e-3)))
        known.append(evaluated(proposal, values=(distances[-1],)))
    assert min(distances[10:]) < 0.05 < min(distances[:10])


@pytest.mark.parametrize(
    ("search", "named"),
    [
        (CONTINUOUS, []),
        (CONDITIONAL, ["window", "hidden_scale"]),
        (
            {"variant": {"choices": ["loop", "plt"]}, "window": {"choices": [8, 16], "when": {"local": "swa"}}},
            ["window"],
        ),
        ({"lr": {"low": 1e-4, "high": 1e-1}, "window": {"choices": [8, 16], "when": {"local": "swa"}}}, []),
    ],
)
def test_gp_says_what_it_leaves_to_tpe(make_spec: MakeSpec, search: dict[str, Any], named: list[str]) -> None:
    model = {"d_model": 64, "num_layers": 2, "num_heads": 4} | ({} if "variant" in search else {"variant": "plt"})
    notice = new_proposer(make_spec(model=model, search=search, sampler={"name": "gp"})).notice
    assert (notice is None) is (not named)
    assert all(name in (notice or "") for name in named)
    assert new_proposer(make_spec(model=model, search=search, sampler={"name": "tpe"})).notice is None


def test_gp_is_quiet_about_conditional_parameters(make_spec: MakeSpec, capfd: pytest.CaptureFixture[str]) -> None:
    """Optuna would say of every single one that it is drawn at random."""
    spec = make_spec(search=CONDITIONAL, sampler={"name": "gp"}, budget={"configurations": 12})
    assert len(list(islice(drive(new_proposer(spec), []), 12))) == 12
    assert capfd.readouterr().err == ""


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
