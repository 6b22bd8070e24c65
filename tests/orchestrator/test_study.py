"""A study's life: asked, told, interrupted, killed, continued, read. Nothing is lost, repeated or overspent."""

import json
import math
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import optuna
import optuna_dashboard  # type: ignore[import-untyped]
import pytest

from orchestrator.configuration import resolve
from orchestrator.driver_lock import driver_lock
from orchestrator.errors import ServiceError, StudyError
from orchestrator.home import Home
from orchestrator.records import StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.spec import StudySpec
from orchestrator.studies import list_studies, read_study
from orchestrator.study import Study
from workers.protocol import Failure, FailureReason, TrialOutcome

MakeSpec = Callable[..., StudySpec]
CONTINUOUS = {"num_loops": {"choices": [1, 2, 3]}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}
OUTCOME = TrialOutcome(info={"hardware": "cpu"}, seconds=1.0)


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Clock:
    """A second later whenever it is asked."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def metrics_of(spec: StudySpec, trial: TrialRecord) -> dict[str, float]:
    configuration = resolve(spec, trial.params)
    loss = 1 / configuration.model.num_loops + abs(math.log10(configuration.train.lr / 3e-3)) + trial.seed / 100
    return {"val/bits_per_byte": loss, "val/accuracy": 1 / loss, "train/loss": loss}


def run_one(study: Study, spec: StudySpec, trial: TrialRecord) -> TrialRecord:
    study.start_attempt(trial.number)
    study.end_attempt(trial.number, OUTCOME)
    return study.complete(trial.number, metrics_of(spec, trial))


def drive(spec: StudySpec, home: Home, most: int = 1000) -> StudyRecord:
    """Continue the orphans, then run up to `most` further trials."""
    study = Study.open(spec, home, clock=Clock())
    for trial in study.orphans():
        run_one(study, spec, trial)
    for _ in range(most):
        trial_or_none = study.ask()
        if trial_or_none is None:
            break
        run_one(study, spec, trial_or_none)
    return study.record()


def asked(study: Study) -> TrialRecord:
    trial = study.ask()
    assert trial is not None
    return trial


def test_every_configuration_is_asked_once_before_any_gets_a_further_seed(make_spec: MakeSpec, home: Home) -> None:
    record = drive(make_spec(seeds=[3, 1], replicate="all", budget={"configurations": 4}), home)
    assert [trial.seed for trial in record.trials] == [3] * 4 + [1] * 4
    first, second = record.trials[:4], record.trials[4:]
    assert {trial.configuration for trial in first} == {trial.configuration for trial in second}
    assert len({trial.configuration for trial in record.trials}) == 4
    assert all(trial.state is TrialState.COMPLETE for trial in record.trials)


def test_a_clearly_dominated_configuration_gets_no_further_seed(make_spec: MakeSpec, home: Home) -> None:
    """The front is replicated first, which shows how small the noise is; then a single loop has clearly lost."""
    record = drive(make_spec(seeds=[0, 1, 2]), home)
    seeds = {loops: [t.seed for t in record.trials if t.params["num_loops"] == loops] for loops in (1, 2, 3)}
    assert len(seeds[3]) == 4 * 3
    assert seeds[1] == [0]
    assert 4 <= len(seeds[2]) < 4 * 3
    study = Study.open(make_spec(seeds=[0, 1, 2]), home)
    assert study.ask() is None
    assert "clearly dominated, with fewer seeds" in study.why_exhausted()


def test_a_trial_is_recorded_whole(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec(constraints=["val/accuracy >= 0.5"])
    study = Study.open(spec, home, clock=Clock())
    run_one(study, spec, asked(study))
    trial = run_one(study, spec, asked(study))
    assert trial == study.trial(1) == study.record().trials[1] == read_study(home, "small").trials[1]
    assert trial.params == {"num_loops": 2, "window": 8, "gate_mode": "learned"}
    assert trial.knobs == resolve(spec, trial.params).knobs
    assert trial.configuration == resolve(spec, trial.params).fingerprint
    assert trial.metrics == metrics_of(spec, trial)
    assert trial.values == (trial.metrics["val/bits_per_byte"], trial.metrics["val/accuracy"])
    assert trial.violations == {"val/accuracy >= 0.5": 0.5 - trial.metrics["val/accuracy"]}
    assert trial.feasible
    (attempt,) = trial.attempts
    assert (attempt.number, attempt.failure, attempt.info) == (1, None, {"hardware": "cpu"})
    assert trial.started == attempt.started
    assert trial.ended is not None
    assert attempt.ended is not None
    assert attempt.started < attempt.ended < trial.ended
    assert trial.ended.tzinfo is not None


@pytest.mark.parametrize(("budget", "expected", "why"), [(4, 4, "budget spent (4"), (50, 9, "every point tried (9")])
def test_the_budget_is_a_total(make_spec: MakeSpec, home: Home, budget: int, expected: int, why: str) -> None:
    """Killed and continued at every point: the number of distinct configurations is exact."""
    spec = make_spec(budget={"configurations": budget}, seeds=[0, 1], replicate="all", sampler={"name": "tpe"})
    for _ in range(7):
        drive(spec, home, most=2)
        Study.open(spec, home).ask()  # a driver killed while this trial runs
    record = drive(spec, home)
    assert len(record.trials) == 2 * expected
    assert len({(trial.configuration, trial.seed) for trial in record.trials}) == 2 * expected
    study = Study.open(spec, home)
    assert study.ask() is None
    assert study.why_exhausted().startswith(why)


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_a_killed_study_ends_like_an_unbroken_one(make_spec: MakeSpec, tmp_path: Path, sampler: str) -> None:
    spec = make_spec(search=CONTINUOUS, sampler={"name": sampler, "seed": 5}, budget={"configurations": 13})
    whole = drive(spec, Home(tmp_path / "whole"))
    broken = Home(tmp_path / "broken")
    for most in (3, 8):
        drive(spec, broken, most)
        Study.open(spec, broken).ask()  # killed while it runs
    continued = drive(spec, broken)
    assert [(t.number, t.params, t.seed, t.values) for t in continued.trials] == [
        (t.number, t.params, t.seed, t.values) for t in whole.trials
    ]
    assert len(whole.trials) == 13


def test_a_killed_drivers_trials_go_on_as_the_next_attempt(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec()
    killed = Study.open(spec, home)
    killed.start_attempt(asked(killed).number)
    asked(killed)
    study = Study.open(spec, home)
    orphans = study.orphans()
    assert [trial.number for trial in orphans] == [0, 1]
    assert [study.start_attempt(trial.number) for trial in orphans] == [2, 1]
    first, second = study.trial(0).attempts
    assert first.failure is not None
    assert first.failure["reason"] == "driver_lost"
    assert first.ended is not None
    assert second.ended is None
    assert asked(study).number == 2
    study.complete(0, metrics_of(spec, orphans[0]))
    assert [trial.number for trial in study.orphans()] == [1]


def test_a_released_trial_waits_and_is_asked_first(make_spec: MakeSpec, home: Home) -> None:
    study = Study.open(make_spec(), home)
    numbers = [asked(study).number for _ in range(3)]
    study.start_attempt(1)
    for number in (1, 2):
        study.release(number)
    assert [trial.state for trial in study.trials()] == [TrialState.RUNNING, TrialState.WAITING, TrialState.WAITING]
    assert study.trial(1).attempts[0].ended is not None
    again = Study.open(make_spec(), home)
    assert [trial.number for trial in again.orphans()] == [0]
    assert [asked(again).number for _ in range(3)] == [1, 2, 3]
    assert numbers == [0, 1, 2]
    assert again.start_attempt(1) == 2


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"val/bits_per_byte": math.nan, "val/accuracy": 0.5}, "val/bits_per_byte is nan"),
        ({"val/bits_per_byte": 1.0, "val/accuracy": -math.inf}, "val/accuracy is -inf"),
        ({"val/bits_per_byte": 1.0, "val/accuracy": 0.5, "train/loss": math.inf}, "train/loss is inf"),
        ({"val/accuracy": 0.5}, "the trial ended without a value for val/bits_per_byte"),
        ({"val/bits_per_byte": 1.0, "val/accuracy": 0.5, "x": 1.0}, "without a value for train/loss <= 5"),
    ],
)
def test_what_is_not_finite_is_never_complete(
    make_spec: MakeSpec, home: Home, metrics: dict[str, float], message: str
) -> None:
    constraints = ["train/loss <= 5"] if "x" in metrics else []
    study = Study.open(make_spec(constraints=constraints), home)
    trial = study.complete(asked(study).number, metrics)
    assert trial.state is TrialState.FAIL
    assert trial.failure is not None
    assert trial.failure["reason"] == "diverged"
    assert message in trial.failure["message"]
    assert trial.values is None
    assert all(math.isfinite(value) for value in trial.metrics.values())
    assert asked(study).number == 1


def test_a_failure_is_kept(make_spec: MakeSpec, home: Home) -> None:
    study = Study.open(make_spec(), home)
    failure = Failure(reason=FailureReason.EXCEPTION, message="KeyError: 'x'", traceback="Traceback ...")
    number = asked(study).number
    study.start_attempt(number)
    study.end_attempt(number, TrialOutcome(failure=failure))
    trial = study.fail(number, failure, {"train/loss": 2.0, "val/loss": math.nan})
    expected = {"reason": "exception", "message": "KeyError: 'x'", "traceback": "Traceback ..."}
    assert (trial.state, trial.failure, trial.metrics) == (TrialState.FAIL, expected, {"train/loss": 2.0})
    assert trial.attempts[0].failure == expected


def test_a_configuration_that_is_infeasible_beforehand_gets_no_more_seeds(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec(seeds=[0, 1, 2], constraints=["train/loss <= 1"])
    study = Study.open(spec, home)
    trial = study.prune(asked(study).number, {"train/loss": 3.0})
    assert (trial.state, trial.feasible, trial.violations) == (TrialState.PRUNED, False, {"train/loss <= 1": 2.0})
    assert trial.metrics == {"train/loss": 3.0}
    following = asked(study)
    assert (following.seed, following.configuration != trial.configuration) == (0, True)


def test_infeasible_trials_are_not_among_optunas_best(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec(constraints=["train/loss <= 0.6"], budget={"configurations": 9})
    record = drive(spec, home)
    loaded = optuna.load_study(study_name="small", storage=_storage(home))
    feasible = {trial.number for trial in record.trials if trial.feasible}
    assert 0 < len(feasible) < 9
    assert {trial.number for trial in loaded.best_trials} <= feasible


def _storage(home: Home) -> optuna.storages.JournalStorage:
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(home.journal("small"))))


def test_optuna_opens_the_study(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec(search=CONTINUOUS, budget={"configurations": 3}, constraints=["train/loss <= 9"])
    record = drive(spec, home)
    loaded = optuna.load_study(study_name="small", storage=_storage(home))
    assert [direction.name for direction in loaded.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert loaded.metric_names == ["val/bits_per_byte", "val/accuracy"]
    for mine, theirs in zip(record.trials, loaded.trials, strict=True):
        assert (mine.params, list(mine.values or ())) == (theirs.params, theirs.values)
        assert theirs.state == optuna.trial.TrialState.COMPLETE
        assert theirs.constraints == mine.violations
        assert set(theirs.distributions) == {"num_loops", "lr"}


def test_optuna_dashboard_shows_the_study(make_spec: MakeSpec, home: Home) -> None:
    drive(make_spec(), home, most=3)
    application = optuna_dashboard.wsgi(_storage(home))
    environment: dict[str, Any] = {"PATH_INFO": "/api/studies/0"}
    setup_testing_defaults(environment)
    status: list[str] = []
    page = b"".join(application(environment, lambda line, *_: status.append(line)))
    assert status == ["200 OK"]
    shown = json.loads(page)
    assert shown["name"] == "small"
    assert [trial["state"] for trial in shown["trials"]] == ["Complete"] * 3


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": {"variant": "plt", "d_model": 32, "num_layers": 2, "num_heads": 4}}, "model.d_model is 32, was 64"),
        ({"data": {"seq_len": 64}}, "data.seq_len is 64, was 128"),
        ({"train": {"lr": 1e-3}}, "train.lr is 0.001, was not set"),
        ({"search": {"num_loops": {"choices": [1, 2]}}}, "search.num_loops.choices is [1, 2], was [1, 2, 3]"),
        ({"search": {**CONTINUOUS}}, "search.lr is {'low': 0.0001"),
        ({"objectives": [{"metric": "val/accuracy", "direction": "maximize"}]}, "objectives is [{'metric'"),
        ({"constraints": ["val/accuracy >= 0.1"]}, "constraints is ['val/accuracy >= 0.1'], was []"),
        ({"sampler": {"name": "auto", "seed": 9}}, "sampler.seed is 9, was 0"),
        ({"benchmark": {}}, "benchmark is {"),
        ({"seeds": [1, 0]}, "seeds is [1, 0], was [0]"),
    ],
)
def test_another_question_under_the_same_name_is_refused(
    make_spec: MakeSpec, home: Home, changes: dict[str, Any], named: str
) -> None:
    before = drive(make_spec(), home, most=1)
    with pytest.raises(StudyError) as caught:
        Study.open(make_spec(**changes), home)
    assert named in str(caught.value)
    assert "--fork NEW-NAME" in str(caught.value)
    assert read_study(home, "small") == before


def test_more_budget_and_more_seeds_continue(make_spec: MakeSpec, home: Home) -> None:
    drive(make_spec(budget={"configurations": 2}, question="small?"), home)
    larger = make_spec(budget={"configurations": 3}, seeds=[0, 7], question="large?", retry={"max_attempts": 9})
    record = drive(larger, home)
    assert sorted((t.seed, t.configuration) for t in record.trials) == sorted(
        (seed, configuration) for seed in (0, 7) for configuration in {t.configuration for t in record.trials}
    )
    assert (record.budget, record.seeds, record.question) == (3, (0, 7), "large?")
    assert record.spec == larger.to_plain()


def test_only_a_living_driver_shows_running(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec()
    with driver_lock(home, "small"):
        study = Study.open(spec, home, clock=Clock())
        assert study.record().state is StudyState.CREATED
        study.set_state(StudyState.RUNNING, "")
        asked(study)
        living = read_study(home, "small")
        assert (living.state, living.trials[0].state) == (StudyState.RUNNING, TrialState.RUNNING)
        assert living.driver is not None
        assert living == study.record()
    dead = read_study(home, "small")
    assert (dead.state, dead.driver, dead.trials[0].state) == (StudyState.INTERRUPTED, None, TrialState.WAITING)
    assert "`plt resume small` continues it" in dead.message
    assert dead.created == datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    study.set_state(StudyState.COMPLETE, "every point tried")
    assert (read_study(home, "small").state, read_study(home, "small").message) == (
        StudyState.COMPLETE,
        "every point tried",
    )


@pytest.mark.parametrize("torn", [b'{"op_code":8,"trial_id":0,"us', b"{", b'{"op_code":8}'])
def test_half_an_entry_at_the_end_is_survived(
    make_spec: MakeSpec, home: Home, caplog: pytest.LogCaptureFixture, torn: bytes
) -> None:
    before = drive(make_spec(), home, most=3)
    with home.journal("small").open("ab") as file:
        file.write(torn)
    assert read_study(home, "small") == before
    after = drive(make_spec(), home)
    assert "half an entry" in caplog.text
    assert after.trials[:3] == before.trials
    assert len(after.trials) == 9
    assert read_study(home, "small") == after


def test_a_study_read_while_it_is_written_grows(make_spec: MakeSpec, home: Home) -> None:
    spec = make_spec()
    study = Study.open(spec, home)
    seen = []
    for _ in range(3):
        run_one(study, spec, asked(study))
        seen.append(len(read_study(home, "small").trials))
    assert seen == [1, 2, 3]


def test_a_damaged_journal_is_named(make_spec: MakeSpec, home: Home) -> None:
    drive(make_spec(), home, most=2)
    journal = home.journal("small")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:4], b"{broken\n", *lines[4:]]))
    for attempt in (lambda: read_study(home, "small"), lambda: Study.open(make_spec(), home)):
        with pytest.raises(StudyError, match=r"is damaged .* restore a copy, or move it away"):
            attempt()
    journal.write_bytes(b"")
    with pytest.raises(StudyError, match="is damaged"):
        read_study(home, "small")


def test_studies_are_found_by_name(make_spec: MakeSpec, home: Home) -> None:
    assert list_studies(home) == []
    with pytest.raises(StudyError, match=r"there is no study 'quick' in .*; there are none yet"):
        read_study(home, "quick")
    assert not home.root.exists()
    for name in ("quickstart", "ablation"):
        Study.open(make_spec(name=name), home)
    assert list_studies(home) == ["ablation", "quickstart"]
    with pytest.raises(StudyError, match=r"did you mean quickstart\?"):
        read_study(home, "quickstrat")
    with pytest.raises(StudyError, match="is no study name"):
        read_study(home, "../quickstart")


def test_a_creation_that_was_killed_leaves_nothing_in_the_way(make_spec: MakeSpec, home: Home) -> None:
    folder = home.study("small")
    folder.mkdir(parents=True)
    (folder / "optuna.new").write_bytes(b'{"op_code":0,"half')
    assert list_studies(home) == []
    assert len(drive(make_spec(), home).trials) == 9


def test_a_home_that_is_a_file_is_refused(make_spec: MakeSpec, home: Home) -> None:
    home.root.write_text("", encoding="utf-8")
    with pytest.raises(ServiceError, match="cannot be written"):
        Study.open(make_spec(), home)


def test_trials_that_others_enqueue_are_not_part_of_the_study(make_spec: MakeSpec, home: Home) -> None:
    study = Study.open(make_spec(), home)
    optuna.load_study(study_name="small", storage=_storage(home)).enqueue_trial({"num_loops": 1})
    assert study.trials() == ()
    assert asked(study).number == 1
    assert [trial.number for trial in read_study(home, "small").trials] == [1]
