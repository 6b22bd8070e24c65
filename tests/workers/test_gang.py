"""Several workers train as one does: same losses, same final numbers, whoever is killed and however many go on."""

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import gang_probes
from trials import BATCH, Clock, Unbroken, attempt, countdown, exact, make_trial, run, weights

from workers.attempt_folder import AttemptFolder
from workers.config import DataConfig
from workers.execution import execute
from workers.parallel.meeting import MeetingError, interface_of, joined
from workers.parallel.processes import run_together
from workers.protocol import (
    FailureReason,
    Gang,
    MetricReport,
    Parallel,
    Request,
    ShouldStop,
    TrialOutcome,
    TrialRequest,
    never_stop,
)

STEPS = 60
"""A report at every third."""
ROUNDING = 1e-6
"""Of sums in another order, in float32; 1.1e-7 was seen."""
Stream = Iterator[MetricReport | TrialOutcome]
PARALLEL: tuple[Parallel, ...] = get_args(Parallel)


@pytest.fixture(autouse=True)
def own_device_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no benchmark that this user runs beside the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def trial(tmp_path: Path) -> TrialRequest:
    return hard_trial(tmp_path)


def hard_trial(folder: Path) -> TrialRequest:
    """Where workers could go wrong: a PLT model with gate and window, layers that are parted, gradients that are always
    clipped, micro-batches, and rows of 4 or 5 labels, so that the mean of the workers' means is not the mean."""
    trial = make_trial(folder)
    model = replace(trial.model, num_hidden_layers=2, vocab_size=13, max_position_embeddings=32)
    data = DataConfig(corpus="addition", operands="2,4", seq_len=32, eval_sequences=16)
    train = replace(trial.train, tokens=STEPS * BATCH * 32, micro_batch_size=2, grad_clip=0.1)
    return replace(trial, model=model, data=data, train=train, evaluate_at=(40 * BATCH * 32,))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """Reports, outcome and weights of the trial with one worker."""
    folder = tmp_path_factory.mktemp("alone")
    reports, outcome = run(hard_trial(folder))
    assert outcome is not None
    return reports, outcome, weights(AttemptFolder(folder / "attempt-1").model)


def together(
    request: TrialRequest,
    workers: int,
    parallel: Parallel = "ddp",
    *,
    by: Callable[[Request, ShouldStop], Stream] = execute,
    should_stop: ShouldStop = never_stop,
) -> tuple[dict[int, MetricReport], TrialOutcome | None]:
    """As `run` does, by several processes."""
    gang = Gang(workers=workers, parallel=parallel)
    items = list(run_together(replace(request, gang=gang), by, should_stop))
    reports = {item.step: item for item in items if isinstance(item, MetricReport)}
    outcomes = [item for item in items if isinstance(item, TrialOutcome)]
    assert len(outcomes) <= 1
    return reports, outcomes[0] if outcomes else None


def assert_as_alone(
    alone: Unbroken, reports: dict[int, MetricReport], outcome: TrialOutcome | None, folder: str
) -> None:
    expected, whole, model = alone
    assert outcome is not None
    assert outcome.failure is None, outcome.failure
    assert reports.keys() == expected.keys()
    for step, report in reports.items():
        assert exact(report.metrics) == pytest.approx(exact(expected[step].metrics), rel=ROUNDING)
    assert exact(outcome.metrics) == pytest.approx(exact(whole.metrics), rel=ROUNDING)
    trained = weights(AttemptFolder(folder).model)
    assert trained.keys() == model.keys()
    for name, tensor in trained.items():
        assert (tensor - model[name]).abs().max() <= 1e-4 * (1 + model[name].abs().max()), name


@pytest.mark.parametrize("parallel", PARALLEL)
def test_two_workers_give_the_numbers_of_one(trial: TrialRequest, alone: Unbroken, parallel: Parallel) -> None:
    reports, outcome = together(trial, 2, parallel)
    assert_as_alone(alone, reports, outcome, trial.folder)
    assert outcome is not None
    assert outcome.info["gang"] == {"workers": 2, "parallel": parallel}
    assert {path.name for path in Path(trial.folder).iterdir()} == {"checkpoint", "output.log"}


def test_after_a_lost_worker_and_with_any_number_of_them_it_ends_as_alone(trial: TrialRequest, alone: Unbroken) -> None:
    """One worker, two with copies of which the first dies, two with parts of which the last dies, one again.

    Each goes on from between two reports.
    """
    clock = Clock(0.0)
    run(trial, countdown(8, lambda: clock.wait(61.0)), clock)
    _, outcome = together(attempt(trial, 2), 2, "ddp", by=gang_probes.first_dies)
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.WORKER_LOST
    assert outcome.failure.message == "rank 0: the worker process was killed by signal 9"
    _, outcome = together(attempt(trial, 3), 2, "fsdp", by=gang_probes.last_dies)
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.WORKER_LOST
    assert outcome.failure.message == "rank 1: the worker process was killed by signal 9"
    reports, outcome = run(attempt(trial, 4))
    assert_as_alone(alone, reports, outcome, attempt(trial, 4).folder)
    assert outcome is not None
    assert outcome.info["resumed"]["from"] == "attempt-3"
    assert outcome.info["resumed"]["step"] == 16


def test_on_machines_that_share_no_disk_they_meet_and_go_on_through_the_store(
    trial: TrialRequest, alone: Unbroken, tmp_path: Path
) -> None:
    trial = replace(trial, store=f"file://{tmp_path}/store")
    _, outcome = together(trial, 2, "fsdp", by=gang_probes.apart_and_last_dies)
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.message == "rank 1: the worker process was killed by signal 9"
    reports, outcome = together(attempt(trial, 2), 2, "fsdp", by=gang_probes.apart)
    machine = tmp_path / "of-attempt-2-rank-0"
    assert_as_alone(alone, reports, outcome, str(machine / "attempt-2"))
    assert outcome is not None
    assert outcome.info["resumed"] == {"step": 6, "from": "attempt-1"}
    stored = [path.relative_to(tmp_path / "store").parts[:2] for path in (tmp_path / "store").rglob("whole.json")]
    assert stored == [("attempt-2", "checkpoint")]
    assert not list((tmp_path / "of-attempt-2-rank-1").rglob("*.safetensors"))


def test_a_worker_that_fails_says_why(trial: TrialRequest) -> None:
    _, outcome = together(trial, 2, "fsdp", by=gang_probes.last_raises)
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.EXCEPTION
    assert outcome.failure.message == "rank 1: ValueError: rank 1 cannot go on"
    assert "Traceback" in AttemptFolder(trial.folder).output.read_text()


def test_all_workers_stop_together_and_leave_a_state(trial: TrialRequest) -> None:
    reported: list[int] = []
    gang = replace(trial, gang=Gang(workers=2))
    for item in run_together(gang, execute, lambda: len(reported) > 2):
        assert isinstance(item, MetricReport)
        reported.append(item.step)
    assert 0 < max(reported) < STEPS
    assert AttemptFolder(trial.folder).states()
    assert "Traceback" not in AttemptFolder(trial.folder).output.read_text()


def test_all_workers_leave_together_when_one_machine_is_taken_away(trial: TrialRequest) -> None:
    _, outcome = together(trial, 2, by=gang_probes.last_leaves)
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.PREEMPTED
    saved = re.search(r"a state was saved at step (\d+) of 60$", outcome.failure.message)
    assert saved is not None
    assert AttemptFolder(trial.folder).states()[0].name.endswith(f"{int(saved[1]):09d}")


def test_a_worker_holds_its_part_of_weights_gradients_and_optimizer_state(trial: TrialRequest) -> None:
    _, outcome = together(trial, 2, "fsdp", by=gang_probes.weighed)
    assert outcome is not None
    assert outcome.failure is None, outcome.failure
    assert {"weights", "gradients", "optimizer"} == outcome.metrics.keys()
    for name, share in outcome.metrics.items():
        assert share == pytest.approx(0.5, abs=0.02), name  # 13 rows of an embedding are 7 and 6


def test_who_waits_in_vain_for_rank_0_says_so(tmp_path: Path) -> None:
    with (
        pytest.raises(MeetingError, match=r"rank 1 of 2 waited for .*meeting in vain"),
        joined(Gang(workers=2, rank=1), tmp_path, seconds=0.1),
    ):
        pass


def test_an_address_is_of_an_interface() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.7") is None
