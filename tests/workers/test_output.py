"""What an attempt prints and logs lands in its file, capped, and nowhere else; nothing about it can fail a trial."""

import errno
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers.attempt_folder import AttemptFolder
from workers.config import DataConfig, ModelConfig, TrainConfig
from workers.output import CAP, captured
from workers.protocol import Failure, FailureReason, MetricReport, TrialOutcome, TrialRequest

MODEL = ModelConfig(
    vocab_size=4, hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1
)


def request(folder: Path) -> TrialRequest:
    data, train = DataConfig(corpus="phop", seq_len=16), TrainConfig(tokens=200 * 16 * 16)
    return TrialRequest(
        attempt_id="0-1", model=MODEL, data=data, train=train, seed=0, data_folder="", folder=str(folder)
    )


def run(folder: Path, *acts: Callable[[], object], failure: Failure | None = None) -> tuple[TrialOutcome, str]:
    """An attempt that does so much and ends so; its outcome and its output."""

    def stream() -> Iterator[MetricReport | TrialOutcome]:
        for act in acts:
            act()
        yield TrialOutcome(failure=failure, seconds=2.0)

    (outcome,) = captured(stream(), request(folder))
    assert isinstance(outcome, TrialOutcome)
    path = AttemptFolder(folder).output
    return outcome, path.read_text(encoding="utf-8") if path.is_file() else ""


def test_reports_are_a_line_each(tmp_path: Path) -> None:
    metrics = {"train/loss": 2.125, "val/bits_per_byte": 3.0}
    reports = [MetricReport(step=40, tokens=10240, metrics=metrics, seconds=1.0), TrialOutcome(seconds=61.26)]
    assert list(captured(iter(reports), request(tmp_path))) == reports
    assert AttemptFolder(tmp_path).output.read_text().splitlines() == [
        "step 40 of 200, tokens 10240, train/loss 2.125, val/bits_per_byte 3",
        "ended after 61.3 s",
    ]


def test_a_gigabyte_of_prints_leaves_a_capped_file_that_still_says_why_it_failed(tmp_path: Path) -> None:
    line = "x" * 1_000_000
    failure = Failure(reason=FailureReason.EXCEPTION, message="KeyError: 'a'", traceback="Traceback\n  line 1\n")

    def flood() -> None:
        for _ in range(1000):
            print(line)

    _, output = run(tmp_path, flood, failure=failure)
    assert CAP <= len(output) < CAP + 1000
    *_, dropped, first, second, last = output.splitlines()
    assert dropped == f"[more than {CAP} bytes were printed; the rest is dropped]"
    assert [first, second, last] == ["Traceback", "  line 1", "exception: KeyError: 'a'"]


def test_the_cap_counts_bytes_and_breaks_no_character(tmp_path: Path) -> None:
    _, output = run(tmp_path, lambda: print("\N{SNOWMAN}" * CAP))
    assert len(output.encode()) < CAP + 1000
    assert output.startswith("\N{SNOWMAN}" * 1000)


def test_what_has_no_utf8_is_written_nevertheless(tmp_path: Path) -> None:
    _, output = run(tmp_path, lambda: print("\ud800 lone"))
    assert output.startswith("\\ud800 lone\n")


def test_what_is_raised_is_written_and_raised_on(tmp_path: Path) -> None:
    def stream() -> Iterator[MetricReport | TrialOutcome]:
        raise ValueError("no good")
        yield

    with pytest.raises(ValueError, match="no good"):
        list(captured(stream(), request(tmp_path)))
    output = AttemptFolder(tmp_path).output.read_text()
    assert output.startswith("Traceback")
    assert output.endswith("ValueError: no good\n")


def test_a_stream_that_is_left_is_closed_and_its_last_words_are_kept(tmp_path: Path) -> None:
    def stream() -> Iterator[MetricReport | TrialOutcome]:
        try:
            yield TrialOutcome()
        finally:
            print("putting things away")

    items = captured(stream(), request(tmp_path))
    next(items)
    items.close()
    assert AttemptFolder(tmp_path).output.read_text().endswith("putting things away\n")


def test_only_the_working_thread_is_captured_and_only_while_it_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def elsewhere() -> None:
        print("another thread")
        logging.getLogger("other").error("another thread's record")

    def act() -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        logging.getLogger("mine").error("my record")

    before = (sys.stdout, sys.stderr, list(logging.getLogger().handlers))
    _, output = run(tmp_path, act)
    assert (sys.stdout, sys.stderr, logging.getLogger().handlers) == before
    assert output.splitlines() == ["ERROR mine: my record", "ended after 2.0 s"]
    assert capsys.readouterr().out == "another thread\n"


def test_a_handler_made_by_a_library_meanwhile_goes_on_working(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("library")
    logger.propagate = False
    run(tmp_path / "1", lambda: logger.addHandler(logging.StreamHandler()))
    _, output = run(tmp_path / "2", lambda: logger.error("in the next attempt"))
    assert output.startswith("in the next attempt\n")
    logger.error("outside")
    assert capsys.readouterr().err == "outside\n"


def test_output_that_cannot_be_written_is_said_and_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome, _ = run(tmp_path / "file" / "attempt", lambda: print("lost"))
    assert outcome.failure is None
    assert outcome.info["output"] == f"not kept: {os.strerror(errno.ENOTDIR)}"


def test_a_full_disk_is_said_and_fails_nothing(tmp_path: Path) -> None:
    AttemptFolder(tmp_path).output.symlink_to("/dev/full")
    outcome, _ = run(tmp_path, lambda: print("lost"), lambda: print("lost as well"))
    assert outcome.failure is None
    assert outcome.info["output"] == f"not kept: {os.strerror(errno.ENOSPC)}"
