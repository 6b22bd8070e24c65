"""The space holds exactly the points that the file describes."""

from collections.abc import Callable
from itertools import product
from typing import Any

import optuna
import pytest

from orchestrator.configuration import resolve
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

MakeSpec = Callable[..., StudySpec]


def test_points_are_all_combinations_in_the_files_order(make_spec: MakeSpec) -> None:
    space = SearchSpace(make_spec())
    expected: list[dict[str, Any]] = [{"num_loops": 1}]
    expected += [
        {"num_loops": loops, "window": window, "gate_mode": gate}
        for loops, window, gate in product((2, 3), (8, 16), ("learned", 0.5))
    ]
    assert space.points() == expected
    assert space.size == 9


def test_points_that_are_one_configuration_are_one_point(make_spec: MakeSpec) -> None:
    unconditional = {"num_loops": {"choices": [1, 2]}, "window": {"choices": [8, 16, 32]}}
    assert SearchSpace(make_spec(search=unconditional)).points() == [
        {"num_loops": 1, "window": 8},
        *({"num_loops": 2, "window": window} for window in (8, 16, 32)),
    ]


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        ({"low": 1, "high": 4}, [1, 2, 3, 4]),
        ({"low": 16, "high": 64, "step": 16}, [16, 32, 48, 64]),
        ({"low": 5, "high": 5}, [5]),
        ({"low": 2, "high": 5, "log": True}, [2, 3, 4, 5]),
    ],
)
def test_whole_ranges_are_listed(make_spec: MakeSpec, entry: dict[str, Any], values: list[int]) -> None:
    points = SearchSpace(make_spec(search={"batch_size": entry})).points()
    assert points == [{"batch_size": value} for value in values]


def test_stepped_ranges_are_listed_without_rounding_errors(make_spec: MakeSpec) -> None:
    points = SearchSpace(make_spec(search={"hidden_scale": {"low": 0.1, "high": 0.7, "step": 0.1}})).points()
    assert points is not None
    assert [point["hidden_scale"] for point in points] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]


@pytest.mark.parametrize(
    "entry", [{"low": 3e-3, "high": 3e-3}, {"low": 3e-3, "high": 3e-3, "log": True}, {"choices": [3e-3]}]
)
def test_a_parameter_of_one_value_is_one_point(make_spec: MakeSpec, entry: dict[str, Any]) -> None:
    space = SearchSpace(make_spec(search={"lr": entry}))
    assert space.points() == [{"lr": 3e-3}]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    assert space.suggest(study.ask()) == {"lr": 3e-3}


def test_a_continuous_range_has_no_list(make_spec: MakeSpec) -> None:
    space = SearchSpace(make_spec(search={"lr": {"low": 1e-3, "high": 1e-2}}))
    assert (space.points(), space.size) == (None, None)


def test_a_continuous_range_that_never_applies_does_not_matter(make_spec: MakeSpec) -> None:
    never = {"low": 0.1, "high": 1.0, "when": {"num_loops": ">3"}}
    assert SearchSpace(make_spec(search={"num_loops": {"choices": [1, 2]}, "hidden_scale": never})).size == 2


def test_no_search_is_one_point(make_spec: MakeSpec) -> None:
    assert SearchSpace(make_spec(search={})).points() == [{}]


@pytest.mark.parametrize(
    ("when", "allowed"),
    [
        ({"num_loops": 2}, {2}),
        ({"num_loops": [1, 3]}, {1, 3}),
        ({"num_loops": ">1"}, {2, 3}),
        ({"num_loops": ">= 2"}, {2, 3}),
        ({"num_loops": "<2"}, {1}),
        ({"num_loops": "<=2"}, {1, 2}),
        ({"num_loops": "!=2"}, {1, 3}),
        ({"num_loops": ">1", "local": "swa"}, {2, 3}),
        ({"variant": ["loop", "plt"], "num_loops": 3}, {3}),
        ({"local": "none"}, set()),
        ({"tokens": "<=1M"}, {1, 2, 3}),
        ({"tokens": ">1M"}, set()),
        ({"gate_bias_init": ">0"}, set()),
        ({"clp": True}, {1, 2, 3}),
        ({"clp": "!=true"}, set()),
    ],
)
def test_conditions(make_spec: MakeSpec, when: dict[str, Any], allowed: set[int]) -> None:
    """`local` and `clp` are implied by the variant plt, `tokens` is its default of one million."""
    search = {"num_loops": {"choices": [1, 2, 3]}, "lr": {"choices": [1e-3], "when": when}}
    points = SearchSpace(make_spec(search=search)).points()
    assert points is not None
    assert {point["num_loops"] for point in points if "lr" in point} == allowed


def test_a_condition_can_name_what_the_searched_variant_implies(make_spec: MakeSpec) -> None:
    search = {"variant": {"choices": ["vanilla", "loop", "plt"]}, "window": {"choices": [8], "when": {"local": "swa"}}}
    points = SearchSpace(make_spec(model={"d_model": 64, "num_layers": 2, "num_heads": 4}, search=search)).points()
    assert points == [{"variant": "vanilla"}, {"variant": "loop"}, {"variant": "plt", "window": 8}]


def test_what_is_suggested_is_a_point(make_spec: MakeSpec) -> None:
    spec = make_spec()
    space = SearchSpace(spec)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [space.suggest(study.ask()) for _ in range(200)]
    points = space.points()
    assert points is not None
    assert {repr(point) for point in drawn} == {repr(point) for point in points}
    assert [trial.params for trial in study.get_trials()] == drawn


def test_suggested_numbers_keep_their_bounds_and_types(make_spec: MakeSpec) -> None:
    search = {
        "lr": {"low": 1e-4, "high": 1e-2, "log": True},
        "batch_size": {"low": 4, "high": 12, "step": 4},
        "hidden_scale": {"low": 0, "high": 1, "step": 0.25},
    }
    space = SearchSpace(make_spec(search=search))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [space.suggest(study.ask()) for _ in range(300)]
    assert {one["batch_size"] for one in drawn} == {4, 8, 12}
    assert {one["hidden_scale"] for one in drawn} == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert all(1e-4 <= one["lr"] <= 1e-2 for one in drawn)
    below = sum(one["lr"] < 1e-3 for one in drawn)
    assert 100 < below < 200  # half of the draws are in the lower decade
    assert set(space.distributions(drawn[0])) == set(search)


def test_every_listed_point_resolves(make_spec: MakeSpec) -> None:
    spec = make_spec()
    found = SearchSpace(spec).configurations
    assert found is not None
    assert [resolve(spec, one.params) for one in found] == list(found)
