"""A fork begins with what the old study found, as far as that answers the new question, and with nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.configuration import resolve
from orchestrator.errors import StudyError
from orchestrator.fork import Fork
from orchestrator.home import Home
from orchestrator.records import TrialRecord, TrialState
from orchestrator.spec import StudySpec
from orchestrator.studies import read_study
from orchestrator.study import Study
from workers.protocol import Failure, FailureReason, TrialOutcome

MakeSpec = Callable[..., StudySpec]
BENCHMARK = {"context": 64, "generate": 4}


def metrics_of(spec: StudySpec, trial: TrialRecord) -> dict[str, float]:
    loops = resolve(spec, trial.params).model.num_loops
    return {"val/bits_per_byte": 3.0 - loops / 10, "val/accuracy": loops / 10 + trial.seed, "decode/ms_per_token": 9.0}


def drive(spec: StudySpec, study: Study) -> None:
    while (trial := study.ask()) is not None:
        study.start_attempt(trial.number)
        study.end_attempt(trial.number, TrialOutcome())
        if resolve(spec, trial.params).model.window == 16:
            study.fail(trial.number, Failure(reason=FailureReason.DIVERGED, message="nan"))
        else:
            study.complete(trial.number, metrics_of(spec, trial))


@pytest.fixture
def old(make_spec: MakeSpec, home: Home) -> StudySpec:
    """Nine configurations: five COMPLETE, the four with window 16 FAIL."""
    spec = make_spec(benchmark=BENCHMARK)
    drive(spec, Study.open(spec, home))
    return spec


def forked(home: Home, spec: StudySpec) -> tuple[Study, str]:
    fork = Fork.of(home, spec, {}, "second")
    study = Study.open(fork.spec, home)
    return study, fork.into(study)


@pytest.mark.usefixtures("old")
def test_other_objectives_take_over_what_was_measured_and_run_only_the_rest(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec(benchmark=BENCHMARK, objectives=[{"metric": "val/accuracy", "direction": "maximize"}])
    study, said = forked(home, spec)
    assert said == "took over 5 finished trials of small"
    before = read_study(home, "small")
    for trial in study.trials():
        assert trial.state is TrialState.COMPLETE
        assert trial.forked_from is not None
        source = before.trials[int(trial.forked_from.removeprefix("small/"))]
        assert (trial.params, trial.metrics, trial.seed) == (source.params, source.metrics, source.seed)
        assert trial.values == (source.metrics["val/accuracy"],)
    drive(spec, study)
    asked = [trial for trial in study.trials() if trial.forked_from is None]
    assert len(study.trials()) == 9
    assert {trial.params["window"] for trial in asked} == {16}
    assert read_study(home, "small") == before, "the old study is as it was"


@pytest.mark.usefixtures("old")
def test_a_constraint_judges_what_was_taken_over(make_spec: MakeSpec, home: Home) -> None:
    study, _ = forked(home, make_spec(benchmark=BENCHMARK, constraints=["val/accuracy >= 0.25"]))
    assert {trial.params["num_loops"]: trial.feasible for trial in study.trials()} == {1: False, 2: False, 3: True}


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({"search": {"num_loops": {"choices": [2, 3]}, "window": {"choices": [8]}}}, 2),
        ({"train": {"lr": 0.5}}, 0),
        ({"seeds": [1]}, 0),
        ({"model": {"variant": "plt", "d_model": 64, "num_layers": 3, "num_heads": 4}}, 0),
        ({"objectives": [{"metric": "val/loss", "direction": "minimize"}]}, 0),
        (
            {
                "benchmark": {"context": 32, "generate": 4},
                "objectives": [{"metric": "decode/ms_per_token", "direction": "minimize"}],
            },
            0,
        ),
    ],
)
@pytest.mark.usefixtures("old")
def test_only_what_would_come_out_the_same_is_taken_over(
    make_spec: MakeSpec, home: Home, changes: dict[str, Any], taken: int
) -> None:
    study, said = forked(home, make_spec(**{"benchmark": BENCHMARK, **changes}))
    assert len(study.trials()) == taken
    assert said == f"took over {taken} finished trials of small; {5 - taken} do not apply"


@pytest.mark.usefixtures("old")
def test_what_is_taken_over_counts_in_the_budget(make_spec: MakeSpec, home: Home) -> None:
    study, _ = forked(home, make_spec(benchmark=BENCHMARK, budget={"configurations": 6}))
    assert study.ask() is not None
    assert study.ask() is None


@pytest.mark.usefixtures("old")
def test_a_metric_that_was_not_measured_then_is_missing_now(make_spec: MakeSpec, home: Home) -> None:
    study, _ = forked(home, make_spec(benchmark=BENCHMARK, constraints=["kv/ratio <= 9"]))
    assert study.trials() == ()


def test_a_fork_needs_an_old_study_and_a_new_name(old: StudySpec, make_spec: MakeSpec, home: Home) -> None:
    with pytest.raises(StudyError, match="there is no study 'other'"):
        Fork.of(home, make_spec(name="other"), {}, "second")
    with pytest.raises(StudyError, match="study small exists already"):
        Fork.of(home, old, {}, "small")
    with pytest.raises(StudyError, match="no study name"):
        Fork.of(home, old, {}, "../elsewhere")


def test_other_data_are_not_forked(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec()
    Study.open(spec, home, corpora={"stdlib": "old"})
    with pytest.raises(StudyError, match="other data"):
        Fork.of(home, spec, {"stdlib": "new"}, "second")
