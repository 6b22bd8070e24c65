"""Constraints: positive amounts are violations."""

import pytest

from orchestrator.constraints import parse_constraint, violated_constraints, violations


@pytest.mark.parametrize(
    ("text", "value", "amount"),
    [
        ("decode/ms_per_token <= 12", 15.0, 3.0),
        ("decode/ms_per_token <= 12", 12.0, 0.0),
        ("decode/ms_per_token<=12", 10.0, -2.0),
        ("kv/bytes_per_sequence <= 4MB", 4_000_001.0, 1.0),
        ("kv/bytes_per_sequence < 4MiB", 4_194_303.0, -1.0),
        ("b8/kv/carry_bytes_per_sequence <= 1kB", 1_500.0, 500.0),
        ("model/parameters <= 1.5M", 1_500_001.0, 1.0),
        ("train/tokens >= 2k", 1_000.0, 1_000.0),
        ("val/accuracy >= 0.5", 0.25, 0.25),
        ("val/accuracy > 5e-1", 0.75, -0.25),
        ("x >= -1", -3.0, 2.0),
    ],
)
def test_amounts(text: str, value: float, amount: float) -> None:
    assert parse_constraint(text).amount(value) == amount


@pytest.mark.parametrize("text", ["val/loss <= 4MB", "decode/ms_per_token <= 12ms", "model/parameters <= 4MB"])
def test_units_are_those_of_the_metric(text: str) -> None:
    with pytest.raises(ValueError, match=r"must (be a number, such as|compare with a plain number)"):
        parse_constraint(text)


@pytest.mark.parametrize("text", ["x < 3", "x > 3"])
def test_a_strict_bound_that_is_exactly_met_is_violated(text: str) -> None:
    assert parse_constraint(text).amount(3.0) > 0
    assert violated_constraints([text], {"x": 3.0}) == (text,)


@pytest.mark.parametrize(
    "text", ["x", "x = 3", "x == 3", "<= 3", "x <= 3 y", "x <= nan", "x <= inf", "x <= 3Q", "x <="]
)
def test_what_is_no_constraint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_constraint(text)


def test_only_known_metrics_are_judged() -> None:
    constraints = ["a <= 1", "b <= 1", "c <= 1"]
    assert violations(constraints, {"a": 3.0, "b": 0.5, "d": 9.0}) == {"a <= 1": 2.0, "b <= 1": -0.5}
    assert violated_constraints(constraints, {"a": 3.0, "b": 0.5}) == ("a <= 1",)
