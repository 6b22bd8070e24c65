"""A request gives reports and exactly one outcome, whatever happens, and the same request gives the same numbers."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from workers.attempt_folder import AttemptFolder
from workers.config import BenchmarkConfig, DataConfig, ModelConfig, TrainConfig, variant_knobs
from workers.config.counts import flops_per_token, kv_bytes_per_sequence, parameter_count
from workers.data import prepare
from workers.evaluation.accuracy import evaluate
from workers.execution import describe_failure, execute
from workers.models import load_pretrained
from workers.protocol import BenchmarkRequest, FailureReason, MetricReport, Request, TrialOutcome, TrialRequest
from workers.training import DivergenceError

DATA = DataConfig(corpus="phop", seq_len=16, eval_sequences=16)
MODEL = ModelConfig(
    vocab_size=4,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=16,
    **{**variant_knobs("plt"), "window": 4},
)


def still() -> float:
    """A clock that stands, so that equal work gives equal reports."""
    return 0.0


@pytest.fixture(autouse=True)
def own_device_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no benchmark that this user runs beside the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def request_(tmp_path: Path) -> TrialRequest:
    return TrialRequest(
        attempt_id="0-1",
        model=MODEL,
        data=DATA,
        train=TrainConfig(tokens=10 * 8 * 16, batch_size=8, evaluations=2),
        seed=7,
        data_folder=str(tmp_path / "data"),
        folder=str(tmp_path / "attempt"),
    )


def run(request: Request) -> tuple[list[MetricReport], TrialOutcome]:
    *reports, outcome = list(execute(request, clock=still))
    assert all(isinstance(report, MetricReport) for report in reports)
    assert isinstance(outcome, TrialOutcome)
    return [report for report in reports if isinstance(report, MetricReport)], outcome


def test_a_trial_trains_evaluates_and_saves_its_model(request_: TrialRequest) -> None:
    reports, outcome = run(request_)
    assert outcome.failure is None
    assert [report.step for report in reports] == list(range(1, 11))
    model = load_pretrained(AttemptFolder(request_.folder).model)
    expected = evaluate(model, prepare(DATA, Path(request_.data_folder)).evaluation_set(), 8)
    assert {name: outcome.metrics[name] for name in expected} == expected
    assert {name: reports[-1].metrics[name] for name in expected} == expected


def test_a_trial_says_what_it_cost_and_where_it_ran(request_: TrialRequest) -> None:
    _, outcome = run(request_)
    assert outcome.metrics["model/parameters"] == parameter_count(MODEL)
    assert outcome.metrics["model/parameters"] == sum(
        parameter.numel() for parameter in load_pretrained(AttemptFolder(request_.folder).model).parameters()
    )
    assert outcome.metrics["train/tokens"] == 10 * 8 * 16
    assert outcome.metrics["train/flops"] == flops_per_token(MODEL, 16) * 10 * 8 * 16
    assert outcome.metrics["train/seconds"] == 0.0
    assert outcome.info["versions"]["torch"] == torch.__version__
    assert outcome.info["plan"]["precision"] == "float32"
    assert outcome.info["data"]["corpus"] == "phop"
    assert outcome.info["hardware"]


def test_real_time_is_reported_by_default(request_: TrialRequest) -> None:
    *reports, outcome = list(execute(request_))
    assert isinstance(outcome, TrialOutcome)
    assert 0 < outcome.metrics["train/seconds"] < outcome.seconds
    assert all(isinstance(report, MetricReport) and 0 < report.seconds < outcome.seconds for report in reports)


def test_a_text_corpus_is_trained_on(request_: TrialRequest, tmp_path: Path) -> None:
    for index in range(10):
        (tmp_path / f"{index}.txt").write_text(f"line {index}\n" * 40)
    text = DataConfig(corpus=f"files:{tmp_path}/*.txt", seq_len=16, eval_sequences=16)
    _, outcome = run(replace(request_, data=text, model=replace(MODEL, vocab_size=257)))
    assert outcome.failure is None
    assert {"val/bits_per_byte", "val/accuracy", "val/loss"} <= outcome.metrics.keys()


def test_the_same_request_gives_the_same_numbers_and_another_seed_others(request_: TrialRequest) -> None:
    first, again, other = run(request_), run(request_), run(replace(request_, seed=8))
    assert first == again
    assert other[1].metrics["val/loss"] != first[1].metrics["val/loss"]


def test_divergence_is_a_failure_that_keeps_the_last_metrics(request_: TrialRequest) -> None:
    reports, outcome = run(replace(request_, train=replace(request_.train, lr=1e30)))
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.DIVERGED
    assert "is nan" in outcome.failure.message
    assert len(reports) < 10
    assert outcome.metrics["model/parameters"] == parameter_count(MODEL)
    assert not AttemptFolder(request_.folder).model.exists()


def test_what_cannot_be_trained_is_a_failure_in_one_line(request_: TrialRequest) -> None:
    cases = {
        "matches no file": replace(request_, data=DataConfig(corpus="files:/nowhere/*.py")),
        "vocab_size is 5 and the data has 4": replace(request_, model=replace(MODEL, vocab_size=5)),
        "max_position_embeddings is 8": replace(request_, model=replace(MODEL, max_position_embeddings=8)),
    }
    for complaint, request in cases.items():
        reports, outcome = run(request)
        assert reports == []
        assert outcome.failure is not None
        assert outcome.failure.reason is FailureReason.INVALID
        assert complaint in outcome.failure.message
        assert "\n" not in outcome.failure.message
        assert "Traceback" in outcome.failure.traceback


def cpu_allocation_error() -> Exception:
    try:
        torch.empty(2**60, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    raise AssertionError("an exbibyte was allocated")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), FailureReason.GPU_OOM),
        (MemoryError(), FailureReason.HOST_OOM),
        (cpu_allocation_error(), FailureReason.HOST_OOM),
        (DivergenceError("train/loss", float("nan"), 3), FailureReason.DIVERGED),
        (RuntimeError("first line\nsecond line"), FailureReason.EXCEPTION),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered\nCompile with ..."), FailureReason.DEVICE),
        (RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), FailureReason.DEVICE),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), FailureReason.EXCEPTION),
    ],
)
def test_each_kind_of_exception_has_its_reason(error: Exception, reason: FailureReason) -> None:
    failure = describe_failure(error)
    assert failure.reason is reason
    assert failure.message
    assert "\n" not in failure.message


def test_a_trial_can_be_left_at_any_report(request_: TrialRequest) -> None:
    attempt = execute(request_, clock=still)
    assert isinstance(attempt, Iterator)
    assert isinstance(next(attempt), MetricReport)
    attempt.close()  # type: ignore[attr-defined]
    assert list(attempt) == []
    assert not AttemptFolder(request_.folder).model.exists()
    assert run(request_)[1].failure is None


def test_threads_are_set_for_the_attempt_and_then_put_back(request_: TrialRequest) -> None:
    before = torch.get_num_threads()
    attempt = execute(replace(request_, threads=before + 1), clock=still)
    next(attempt)
    assert torch.get_num_threads() == before + 1
    assert sum(isinstance(each, TrialOutcome) for each in attempt) == 1
    assert torch.get_num_threads() == before


def test_a_benchmark_gives_one_outcome_with_latency_and_memory() -> None:
    grid = BenchmarkConfig(context=8, generate=2, repeats=2, precision="float32")
    model = replace(MODEL, max_position_embeddings=32)
    (outcome,) = execute(BenchmarkRequest(attempt_id="b", model=model, benchmark=grid))
    assert isinstance(outcome, TrialOutcome)
    assert outcome.failure is None
    assert outcome.metrics["decode/ms_per_token"] > 0
    assert outcome.metrics["kv/bytes_per_sequence"] >= kv_bytes_per_sequence(model, 8, 4)


def test_a_model_too_large_for_the_machine_is_out_of_memory() -> None:
    large = replace(MODEL, hidden_size=2**24)  # one projection would take a pebibyte
    reports, outcome = run(BenchmarkRequest(attempt_id="b", model=large, benchmark=BenchmarkConfig()))
    assert reports == []
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.HOST_OOM
