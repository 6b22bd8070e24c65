"""Entries as lines of JSON, there and back."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.tracking.entry import Reported, RunUpdate, decode, encode
from orchestrator.tracking.tracked_run import RunStatus
from workers.protocol import MetricReport

UPDATE = RunUpdate(
    number=3,
    time=1_777_636_800_123,
    status=RunStatus.FAILED,
    name="trial-3",
    started=1_777_636_800_000,
    ended=1_777_636_900_000,
    identity={"plt.trial": "3"},
    origin={"version.torch": "2.13"},
    tags={"plt.state": "FAIL", "message": "two\nlines, ünïcode \u2028"},
    params={"lr": "0.003"},
    metrics={"val/loss": 0.1 + 0.2},
    texts={"traceback.txt": "Traceback\nValueError"},
)


def test_an_update_comes_back_as_it_was() -> None:
    for update in (UPDATE, replace(UPDATE, number=None, ended=None, status=RunStatus.RUNNING)):
        line = encode(update)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert decode(line) == update


@given(
    st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False), max_size=4),
    st.integers(0, 2**60),
    st.integers(0, 2**60),
    st.floats(0, 1e9),
)
def test_a_report_comes_back_to_the_last_bit(metrics: dict[str, float], step: int, time: int, seconds: float) -> None:
    entry = Reported(
        number=7, time=time, report=MetricReport(step=step, tokens=3 * step, metrics=metrics, seconds=seconds)
    )
    assert decode(encode(entry)) == entry


def test_values_that_are_not_finite_are_standard_json_and_come_back_as_nan() -> None:
    metrics = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0}
    line = encode(Reported(number=0, time=1, report=MetricReport(step=1, tokens=1, metrics=metrics, seconds=0.0)))
    assert json.loads(line, parse_constant=pytest.fail)["metrics"] == {"a": None, "b": None, "c": None, "d": 1.0}
    back = decode(line)
    assert isinstance(back, Reported)
    assert [math.isnan(value) for value in back.report.metrics.values()] == [True, True, True, False]


@pytest.mark.parametrize(
    "line", [b"", b"\0\0", b"3", b"null", b'"run"', b"{}", b'{"run":1}', b'{"run":1,"status":"BLUE"}', b'{"trial":1}']
)
def test_a_damaged_line_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(line)
