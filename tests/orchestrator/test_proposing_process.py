"""A sampler in a process of its own proposes the same, is replaced when it dies, and never outlives its driver."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil
import pytest

from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.proposing_process import ProposingProcess
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

MakeSpec = Callable[..., StudySpec]
CONTINUOUS = {"num_loops": {"choices": [1, 2, 3]}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}


@pytest.fixture
def spec(make_spec: MakeSpec) -> StudySpec:
    return make_spec(sampler={"name": "gp", "seed": 4}, search=CONTINUOUS, budget={"configurations": 40})


@pytest.fixture
def process(spec: StudySpec) -> Iterator[ProposingProcess]:
    process = ProposingProcess(Proposer(spec, SearchSpace(spec)))
    yield process
    process.close()


def children() -> list[psutil.Process]:
    """Processes of samplers, still running."""
    found = psutil.Process().children()
    return [one for one in found if one.status() != psutil.STATUS_ZOMBIE and "proposing" in " ".join(one.cmdline())]


def end(known: list[Evaluation], at: int) -> None:
    running = known[at]
    values = (running.params["lr"], running.params["num_loops"] / 3)
    plain: dict[str, Any] = {"fingerprint": running.fingerprint, "params": running.params, "violations": {}}
    known[at] = Evaluation(**plain, values=values, running=False, sampler_state=running.sampler_state)


def compare(process: ProposingProcess, proposer: Proposer, steps: int) -> Sequence[Evaluation]:
    known: list[Evaluation] = []
    for step in range(steps):
        proposal = process.propose(tuple(known))
        assert proposal == proposer.propose(known)
        assert isinstance(proposal, Proposal)
        known.append(proposal.running())
        if step >= 2:
            end(known, step - 2)
    return known


def test_it_proposes_what_the_proposer_would(spec: StudySpec, process: ProposingProcess) -> None:
    """Only changes are sent: results out of step with asks, and a history that is another one all of a sudden."""
    proposer = Proposer(spec, SearchSpace(spec))
    known = compare(process, proposer, 13)
    assert process.propose(known[:2:-1]) == proposer.propose(known[:2:-1])
    assert process.propose([]) == proposer.propose([])
    assert len(children()) == 1


def test_one_that_died_is_started_again_with_all_that_is_known(spec: StudySpec, process: ProposingProcess) -> None:
    proposer = Proposer(spec, SearchSpace(spec))
    known = compare(process, proposer, 3)
    (child,) = children()
    child.kill()
    child.wait()
    assert process.propose(known) == proposer.propose(known)
    assert len(children()) == 1


def test_one_that_cannot_live_is_an_error(process: ProposingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match=r"sampler gp died twice in a row \(exit code 1; .* another sampler"):
        process.propose([])


def test_an_error_in_it_comes_with_its_traceback(process: ProposingProcess) -> None:
    """A result with too few values."""
    broken = Evaluation(
        fingerprint="x",
        params={"num_loops": 1, "lr": 1e-3},
        values=(float("nan"),),
        violations={},
        running=False,
        sampler_state={},
    )
    with pytest.raises(RuntimeError, match=r"(?s)sampler gp failed in its process:.*Traceback.*ValueError"):
        process.propose([broken])


def test_close_ends_it(process: ProposingProcess) -> None:
    process.propose([])
    (child,) = children()
    process.close()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert process.propose([]) is None
    assert children() == []


_DRIVER = """
import sys, time
from orchestrator.proposer import Proposer
from orchestrator.proposing_process import ProposingProcess
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec
spec = StudySpec.from_plain({spec!r})
process = ProposingProcess(Proposer(spec, SearchSpace(spec)))
process.propose([])
print("ready", flush=True)
time.sleep(600)
"""


def test_it_ends_when_the_driver_is_killed(spec: StudySpec) -> None:
    script = _DRIVER.format(spec=spec.to_plain())
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        (child,) = psutil.Process(driver.pid).children()
        os.kill(driver.pid, signal.SIGKILL)
        child.wait(timeout=60)
