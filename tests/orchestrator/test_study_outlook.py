"""What is told about a study before, while and after it runs: preview, time left, hypervolume, importance, savings."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import optuna
import pytest
from optuna.importance import PedAnovaImportanceEvaluator

from orchestrator.configuration import resolve
from orchestrator.hypervolume import hypervolume_history
from orchestrator.importance import importances
from orchestrator.preview import preview
from orchestrator.records import AttemptRecord, Objective, StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.savings import savings
from orchestrator.spec import StudySpec
from orchestrator.time_left import expected_end
from workers.config.counts import flops_per_token

MakeSpec = Callable[..., StudySpec]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def trial(number: int, values: Sequence[float] = (1.0, 1.0), **changes: object) -> TrialRecord:
    started = NOON + timedelta(seconds=10 * number)
    ended = started + timedelta(seconds=10)
    fields: dict[str, object] = {
        "state": TrialState.COMPLETE,
        "params": {},
        "seed": 0,
        "configuration": f"c{number}",
        "values": tuple(values),
        "metrics": {"loss": values[0], "ms": values[1]},
        "knobs": {"tokens": 900},
        "attempts": (AttemptRecord(number=1, started=started, ended=ended),),
        "started": started,
        "ended": ended,
    }
    return TrialRecord(number=number, **{**fields, **changes})  # type: ignore[arg-type]


def study(trials: Sequence[TrialRecord], **changes: object) -> StudyRecord:
    fields: dict[str, object] = {
        "name": "s",
        "question": "",
        "state": StudyState.RUNNING,
        "objectives": (
            Objective(metric="loss", direction="minimize"),
            Objective(metric="ms", direction="maximize"),
        ),
        "constraints": (),
        "search": (),
        "seeds": (0, 1),
        "spec": {},
        "budget": 10,
        "trials": tuple(trials),
        "driver": "here:1",
    }
    return StudyRecord(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_end_is_expected_at_the_pace_of_the_latest_trials() -> None:
    assert expected_end(study([trial(0), trial(1)])) == NOON + timedelta(seconds=20 + 18 * 10)
    beside = [replace(trial(number), started=NOON, ended=NOON + timedelta(seconds=10)) for number in range(5)]
    assert expected_end(study(beside)) == NOON + timedelta(seconds=10 + 15 * 2)


def test_no_end_is_expected_without_a_driver_or_a_finished_trial() -> None:
    assert expected_end(study([trial(0)], driver=None)) is None
    assert expected_end(study([])) is None
    assert expected_end(study([trial(number) for number in range(20)])) == NOON + timedelta(seconds=200)


def test_the_hypervolume_is_optunas_and_never_falls() -> None:
    random = np.random.default_rng(0)
    values = random.uniform(size=(40, 2))
    trials = [trial(number, tuple(row)) for number, row in enumerate(values)]
    trials[3] = replace(trials[3], feasible=False, values=(-9.0, 9.0))
    trials[5] = replace(trials[5], state=TrialState.FAIL, values=None)
    history = hypervolume_history(study(trials))

    able = np.delete(values, [3, 5], axis=0) * [1, -1]
    space = (able - able.min(axis=0)) / (able.max(axis=0) - able.min(axis=0))
    expected = optuna._hypervolume.compute_hypervolume(space, np.array([1.1, 1.1]))
    assert history[-1].volume == pytest.approx(expected)
    assert [point.finished for point in history] == list(range(1, 41))
    assert all(one.volume <= other.volume for one, other in pairwise(history))
    assert len(hypervolume_history(study(trials), most=7)) == 7
    assert hypervolume_history(study(trials), most=7)[-1] == history[-1]
    assert hypervolume_history(study([trials[5]])) == []


def test_one_objective_conquers_a_length() -> None:
    one = (Objective(metric="loss", direction="minimize"),)
    trials = [replace(trial(number), values=(value,)) for number, value in ((0, 3.0), (1, 1.0))]
    history = hypervolume_history(study(trials, objectives=one))
    assert [point.volume for point in history] == pytest.approx([0.1, 1.1])


def test_savings_count_what_was_not_trained() -> None:
    stopped = replace(trial(1), state=TrialState.PRUNED, values=None, stopped_at=300)
    infeasible = replace(trial(2), state=TrialState.PRUNED, values=None, feasible=False)
    failed = replace(trial(3), state=TrialState.FAIL, values=None)
    taken_over = replace(trial(4), forked_from="old/1")
    found = savings(study([trial(0), stopped, infeasible, failed, taken_over]))
    assert (found.trained, found.stopped, found.infeasible) == (900 + 300, 600, 900)
    assert (found.stopped_trials, found.infeasible_trials) == (1, 1)
    assert found.share == pytest.approx(1500 / 2700)
    assert savings(study([])).share == 0.0


def test_importances_are_optunas(make_spec: MakeSpec) -> None:
    spec = make_spec(search={"lr": {"low": 1e-3, "high": 1e-2}, "weight_decay": {"low": 0.0, "high": 0.5}})
    random = np.random.default_rng(1)
    points = [{"lr": low, "weight_decay": decay} for low, decay in random.uniform([1e-3, 0], [1e-2, 0.5], (60, 2))]
    trials = [trial(n, (1e4 * (p["lr"] - 5e-3) ** 2, 1.0), params=p) for n, p in enumerate(points)]
    record = study(trials, spec=spec.to_plain(), search=tuple(spec.search))
    found = {one.param: one.share for one in importances(record, "loss")}

    reference = optuna.create_study()
    for one in trials:
        distributions = {
            "lr": optuna.distributions.FloatDistribution(1e-3, 1e-2),
            "weight_decay": optuna.distributions.FloatDistribution(0.0, 0.5),
        }
        reference.add_trial(
            optuna.create_trial(params=dict(one.params), distributions=distributions, value=one.metrics["loss"])
        )
    expected = optuna.importance.get_param_importances(reference, evaluator=PedAnovaImportanceEvaluator())
    assert found == pytest.approx(expected)
    assert found["lr"] > 0.9
    assert importances(study(trials[:3], spec=spec.to_plain(), search=("lr",)), "loss") == []


def test_a_parameter_that_applies_sometimes_is_judged_where_it_does(make_spec: MakeSpec) -> None:
    spec = make_spec(
        search={"num_loops": {"choices": [1, 2]}, "window": {"choices": [4, 8], "when": {"num_loops": ">1"}}}
    )
    points = [{"num_loops": 1}, {"num_loops": 2, "window": 4}, {"num_loops": 2, "window": 8}] * 5
    trials = [trial(n, (float(p.get("window", 0)), 1.0), params=p) for n, p in enumerate(points)]
    found = {
        one.param: one for one in importances(study(trials, spec=spec.to_plain(), search=tuple(spec.search)), "loss")
    }
    assert (found["num_loops"].always, found["num_loops"].trials) == (True, 15)
    assert (found["window"].always, found["window"].trials) == (False, 10)


def test_a_preview_counts_points_and_costs(make_spec: MakeSpec) -> None:
    spec = make_spec(
        search={"num_loops": {"choices": [1, 2]}, "window": {"choices": [4, 8], "when": {"num_loops": ">1"}}},
        constraints=["kv/bytes_per_sequence <= 1e9"],
        benchmark={"batch_sizes": [1], "context": 32},
        seeds=[0, 1],
        budget={"configurations": 8},
    )
    seen = preview(spec)
    assert (seen.points, seen.infeasible, seen.planned, seen.trials) == (3, 0, 3, 6)
    one = resolve(spec, {"num_loops": 1})
    two = resolve(spec, {"num_loops": 2, "window": 8})
    costs = [each.train.tokens * flops_per_token(each.model, each.data.seq_len) for each in (one, two)]
    assert seen.flops == pytest.approx(tuple(costs))
    assert seen.most_tokens == 6 * one.train.tokens
    assert (seen.device_seconds, seen.speed_from) == (None, 0)

    known = [trial(n, metrics={"train/seconds": 2.0, "train/flops": 1e9}) for n in range(3)]
    timed = preview(spec, [study(known)])
    middle = resolve(spec, {"num_loops": 2, "window": 4})
    total = sum(each.train.tokens * flops_per_token(each.model, each.data.seq_len) for each in (one, middle, two))
    assert timed.device_seconds == pytest.approx(2 * total / 5e8)


def test_a_preview_knows_what_breaks_a_constraint_beforehand(make_spec: MakeSpec) -> None:
    search = {"num_loops": {"choices": [1, 2]}, "window": {"choices": [4, 8], "when": {"num_loops": ">1"}}}
    benchmark = {"batch_sizes": [1], "context": 32}
    free = make_spec(search=search, benchmark=benchmark)
    sizes = [
        resolve(free, point).metrics_beforehand()["kv/bytes_per_sequence"]
        for point in ({"num_loops": 1}, {"num_loops": 2, "window": 4}, {"num_loops": 2, "window": 8})
    ]
    spec = make_spec(search=search, benchmark=benchmark, constraints=[f"kv/bytes_per_sequence < {sizes[2]:.0f}"])
    assert sizes == sorted(set(sizes))
    assert preview(spec).infeasible == 1
    continuous = make_spec(search={"lr": {"low": 1e-3, "high": 1e-2}})
    assert (preview(continuous).points, preview(continuous).infeasible) == (None, None)
