"""A driver started from outside: once, detached, its output kept; and what control and submission make of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from orchestrator.control import Control, DriverOptions, require_failed
from orchestrator.driver_launch import DriverLaunch, spawn_detached
from orchestrator.driver_lock import driver_lock
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.journal import open_journal
from orchestrator.records import StudyState
from orchestrator.requests import RequestKind, pending
from orchestrator.spec import StudySpec
from orchestrator.studies import list_studies, read_study
from orchestrator.study import Study
from orchestrator.submission import submit
from workers.protocol import Failure, FailureReason

MakeSpec = Callable[..., StudySpec]


class Sleepers:
    """Stands for drivers: starts processes that do nothing until they are ended."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, arguments: Sequence[str], output: Path, environment: Mapping[str, str]) -> int:
        output.write_text("starting\nplt: token=hunter2 refused\n")
        self.commands.append(tuple(arguments[3:]))
        assert Path(environment["PLT_HOME"]).is_dir()
        self.processes.append(subprocess.Popen(["sleep", "600"]))
        return self.processes[-1].pid

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    started = Sleepers()
    yield started
    started.end()


@pytest.fixture
def study(home: Home, make_spec: MakeSpec) -> str:
    spec = make_spec()
    with driver_lock(home, spec.name):
        Study.open(spec, home).close()
    return spec.name


def test_a_second_start_is_refused_while_the_first_lives(home: Home, study: str, sleepers: Sleepers) -> None:
    launch = DriverLaunch(home, study, sleepers)
    first = launch.start(("resume", study))
    assert first.alive
    with pytest.raises(StudyError, match="starting or ending"):
        launch.start(("resume", study))
    assert sleepers.commands == [("resume", study)]

    sleepers.end()
    latest = launch.latest()
    assert latest is not None
    assert not latest.alive
    assert launch.start(("retry", study, "--failed")).pid != first.pid
    assert launch.output()[-1] == "plt: token=*** refused"


def test_a_study_that_is_driven_gets_no_second_driver(home: Home, study: str, sleepers: Sleepers) -> None:
    with driver_lock(home, study), pytest.raises(StudyError, match=f"driven by .*:{os.getpid()}"):
        DriverLaunch(home, study, sleepers).start(("resume", study))
    assert not sleepers.commands


def test_a_process_id_that_was_given_again_is_another_process(home: Home, study: str, sleepers: Sleepers) -> None:
    launch = DriverLaunch(home, study, sleepers).start(("resume", study))
    assert not type(launch)(command=(), host=launch.host, pid=launch.pid, began=launch.began - 3600).alive


def test_a_detached_process_outlives_signals_to_ours_and_keeps_its_output(tmp_path: Path) -> None:
    output = tmp_path / "log"
    code = "import os, signal, sys; print('at', os.environ['WHERE'], flush=True); sys.stdin.read(); signal.pause()"
    pid = spawn_detached([sys.executable, "-c", code], output, {"WHERE": "work"})
    process = psutil.Process(pid)
    while not output.read_text():
        assert process.is_running()
    assert output.read_text() == "at work\n"
    assert os.getsid(pid) == pid != os.getsid(0)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert not psutil.pid_exists(pid)  # reaped: nothing is left behind


def test_a_submission_is_one_study_and_one_driver(home: Home, make_spec: MakeSpec, sleepers: Sleepers) -> None:
    spec = make_spec()
    launch = DriverLaunch(home, spec.name, sleepers)
    options = DriverOptions(backend="local")
    made = [submit(home, spec, options, launch).created for _ in range(3)]
    assert made == [True, False, False]
    assert sleepers.commands == [("resume", spec.name, "--backend", "local")]
    assert list_studies(home) == [spec.name]
    assert read_study(home, spec.name).state is StudyState.CREATED
    budget = spec.budget.model_copy(update={"configurations": spec.budget.configurations + 1})
    with pytest.raises(StudyError, match="another name"):
        submit(home, spec.model_copy(update={"budget": budget}), options, launch)


def test_a_living_driver_is_asked_and_nobody_waits(home: Home, study: str, sleepers: Sleepers) -> None:
    launch = DriverLaunch(home, study, sleepers)
    with driver_lock(home, study):
        control = Control(home, read_study(home, study), launch)
        said = [control.pause(), control.resume(DriverOptions()), control.stop()]
        with pytest.raises(StudyError, match="no failed trial"):
            control.retry_failed(DriverOptions())
        with pytest.raises(StudyError, match="give more"):
            control.allow(1, DriverOptions())
    assert said[0].startswith(f"asked {os.uname().nodename}:{os.getpid()} to pause")
    storage = open_journal(home, study)
    asked = pending(storage.get_study_user_attrs(storage.get_study_id_from_name(study)))
    assert [request.kind for request in asked] == [RequestKind.PAUSE, RequestKind.RESUME, RequestKind.STOP]
    assert not sleepers.commands


def test_without_a_driver_stop_is_refused_and_resume_starts_one(home: Home, study: str, sleepers: Sleepers) -> None:
    control = Control(home, read_study(home, study), DriverLaunch(home, study, sleepers))
    with pytest.raises(StudyError, match="nobody drives"):
        control.stop()
    said = control.resume(DriverOptions(address="head:6379"))
    assert sleepers.commands == [("resume", study, "--backend", "ray", "--address", "head:6379")]
    assert f"`plt resume {study} --backend ray --address head:6379`" in said


def test_only_failures_that_were_not_tried_again_can_be(home: Home, make_spec: MakeSpec) -> None:
    spec = make_spec()
    with driver_lock(home, spec.name), Study.open(spec, home) as opened:
        trial = opened.ask()
        assert trial is not None
        opened.start_attempt(trial.number)
        opened.fail(trial.number, Failure(reason=FailureReason.DIVERGED, message="nan"))
        assert [one.number for one in require_failed(opened.record())] == [trial.number]
        opened.retry_failed()
        with pytest.raises(StudyError, match="no failed trial"):
            require_failed(opened.record())
