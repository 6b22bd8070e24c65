"""Proposals are new, finite spaces are exhausted exactly, and a continued study proposes what an unbroken one does."""

import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from orchestrator.proposer import Evaluation
from orchestrator.search_space import SearchSpace
from tests.orchestrator.evaluating import CONTINUOUS, LOSS, SAMPLERS, MakeSpec, drive, evaluated, new_proposer


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


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
