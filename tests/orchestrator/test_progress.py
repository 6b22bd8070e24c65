"""What a person sees while a study runs, on a terminal and in a file."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.home import Home
from orchestrator.progress import Progress
from orchestrator.records import StudyState
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from workers.protocol import Failure, FailureReason, MetricReport

METRICS = {"val/bits_per_byte": 2.5, "val/accuracy": 0.5}


def watched(root: Path, spec: StudySpec, terminal: bool) -> str:
    """The output of a study with one finished, one retried and one failed trial."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=100, _environ={})
    seconds = iter(range(1000))
    progress = Progress(console, clock=lambda: float(next(seconds)))
    study = Study.open(spec, Home(root))
    progress.study_started(study.record())
    for failure in (None, Failure(reason=FailureReason.DIVERGED, message="train/loss is nan")):
        trial = study.ask()
        assert trial is not None
        attempt = study.start_attempt(trial.number)
        progress.trial_started(trial, attempt, steps=10)
        report = MetricReport(step=5, tokens=50, metrics={"train/loss": 1.25}, seconds=1.0)
        progress.trial_reported(trial, report)
        if failure is None:
            progress.trial_ended(study.complete(trial.number, METRICS))
        else:
            progress.trial_retried(trial, "a worker was lost")
            progress.trial_ended(study.fail(trial.number, failure))
    study.set_state(StudyState.INTERRUPTED, "interrupted; run it again to continue")
    progress.study_ended(study.record())
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.getvalue())


@pytest.mark.parametrize("terminal", [True, False])
def test_everything_that_happens_is_said(tmp_path: Path, make_spec: object, terminal: bool) -> None:
    spec: StudySpec = make_spec(budget={"configurations": 3}, question="Which [window] pays?")  # type: ignore[operator]
    output = watched(tmp_path, spec, terminal)
    for words in (
        "3 configurations x 1 seed",
        "Which [window] pays?",
        "trial 0 done: val/bits_per_byte 2.5000 bits/byte, val/accuracy 0.500",
        "trial 1: attempt failed (a worker was lost); trying again",
        "trial 1 failed, diverged: train/loss is nan",
        "interrupted; run it again to continue",
    ):
        assert words in output
    assert ("50 %" in output) is terminal
    assert ("best so far" in output) is terminal


def test_a_continued_study_says_what_is_already_done(tmp_path: Path, make_spec: object) -> None:
    spec: StudySpec = make_spec(budget={"configurations": 4})  # type: ignore[operator]
    watched(tmp_path, spec, terminal=False)
    text = io.StringIO()
    progress = Progress(Console(file=text, width=100), clock=lambda: 0.0)
    progress.study_started(Study.open(spec, Home(tmp_path)).record())
    assert "2 trials already finished" in text.getvalue()
