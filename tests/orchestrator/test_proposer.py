"""Proposals are new, finite spaces are exhausted exactly, and a continued study proposes what an unbroken one does."""

import math
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from statistics import fmean
from typing import Any

import pytest

from orchestrator.configuration import Configuration
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

MakeSpec = Callable[..., StudySpec]
SAMPLERS = ["tpe", "nsga2", "random", "grid"]
CONTINUOUS = {"num_loops": {"choices": [1, 2, 3]}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}


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
@pytest.mark.parametrize("cut", [1, 9, 17])
def test_a_continued_study_proposes_what_the_unbroken_one_does(make_spec: MakeSpec, sampler: str, cut: int) -> None:
    spec = make_spec(sampler={"name": sampler, "seed": 1}, search=CONTINUOUS, budget={"configurations": 20})
    whole = list(islice(drive(new_proposer(spec), []), 20))
    known: list[Evaluation] = []
    first = list(islice(drive(new_proposer(spec), known), cut))
    rest = list(islice(drive(new_proposer(spec), known), 20 - cut))
    assert first + rest == whole


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


@pytest.mark.parametrize(("budget", "sampler"), [(8, "tpe"), (9, "grid"), (50, "grid")])
def test_auto_is_a_grid_when_every_configuration_fits(make_spec: MakeSpec, budget: int, sampler: str) -> None:
    assert new_proposer(make_spec(budget={"configurations": budget})).sampler == sampler


def test_auto_is_tpe_in_a_continuous_space(make_spec: MakeSpec) -> None:
    assert new_proposer(make_spec(search=CONTINUOUS)).sampler == "tpe"


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
