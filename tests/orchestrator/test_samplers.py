"""Samplers learn what they should, `auto` decides by the space, and gp says what it leaves to others."""

import math
import warnings
from collections.abc import Iterator
from itertools import islice
from statistics import fmean
from typing import Any

import pytest

from orchestrator.proposer import Evaluation
from tests.orchestrator.evaluating import (
    ACCURACY,
    CONDITIONAL,
    CONTINUOUS,
    LOSS,
    MakeSpec,
    drive,
    evaluated,
    new_proposer,
)


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


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
