"""Differences are paired by seed, as SciPy's paired t interval; what differs comes first; Markdown is whole."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from scipy import stats

from dashboard import comparison
from orchestrator.configurations import ConfigurationRecord, group
from orchestrator.records import StudyRecord
from orchestrator.statistics import Interval

MakeRecord = Callable[..., StudyRecord]
A, B = [0.50, 0.61, 0.55], [0.53, 0.66, 0.57]


@pytest.fixture
def pair(make_record: MakeRecord) -> list[ConfigurationRecord]:
    def rows(values: list[float], cost: float) -> list[dict[str, float]]:
        return [{"val/accuracy": value, "decode/ms_per_token": cost} for value in values]

    return group(
        make_record(
            ({"num_loops": 1, "lr": 0.003, "window": None}, rows(A, 5.0)),
            ({"num_loops": 2, "lr": 0.003, "window": 8}, rows(B, 6.0)),
        )
    )


def test_a_difference_is_paired_by_seed(pair: list[ConfigurationRecord]) -> None:
    gap = comparison.difference(pair[1], pair[0], "val/accuracy")
    expected = stats.ttest_rel(B, A).confidence_interval(0.95)
    assert gap is not None
    assert (gap.low, gap.high) == pytest.approx((expected.low, expected.high))
    assert gap.n == 3


def test_without_common_seeds_it_is_the_plain_difference(make_record: MakeRecord) -> None:
    one, other = group(
        make_record(
            ({"num_loops": 1}, [{"val/accuracy": 0.5, "decode/ms_per_token": 5.0}]),
            ({"num_loops": 2}, [{"val/accuracy": 0.75, "decode/ms_per_token": 5.0}]),
        )
    )
    assert comparison.difference(other, one, "val/accuracy") == Interval(0.25, None, None, 1)
    assert comparison.difference(other, one, "kv/ratio") is None


@pytest.mark.parametrize(
    ("gap", "base", "text"),
    [
        (Interval(0.25, None, None, 1), 0.5, "+0.250 (+50.0 %)"),
        (Interval(-0.25, -0.3, -0.2, 3), 0.5, "-0.250 ± 0.050 (-50.0 %)"),
        (Interval(0.01, -0.01, 0.03, 3), 0.5, "~ +0.010 ± 0.020 (+2.0 %)"),
        (Interval(0.25, None, None, 1), 0.0, "+0.250"),
        (Interval(0.0, None, None, 1), 0.5, "0"),
        (None, 0.5, "-"),
    ],
)
def test_differences_in_words(gap: Interval | None, base: float, text: str) -> None:
    assert comparison.difference_text("val/accuracy", gap, base) == text


def test_knobs_that_differ_come_first(pair: list[ConfigurationRecord]) -> None:
    frame = comparison.knobs_frame(pair)
    assert list(frame["knob"]) == ["num_loops", "window", "lr"]
    assert list(frame["differs"]) == [True, True, False]
    assert list(frame["R=1 · window -"]) == ["1", "-", "0.003"]


def test_metrics_have_a_difference_column_for_all_but_the_baseline(pair: list[ConfigurationRecord]) -> None:
    frame = comparison.metrics_frame(pair, pair[0])
    assert list(frame.columns) == ["metric", "R=1 · window -", "R=2 · window 8", "Δ R=2 · window 8"]
    latency = frame.set_index("metric").loc["decode/ms_per_token"]
    assert latency["R=1 · window -"] == "5.00 ms/token"
    assert latency["Δ R=2 · window 8"] == "+1.00 ms/token (+20.0 %)"


def test_chosen_keeps_the_order_of_choice_and_drops_the_unknown(pair: list[ConfigurationRecord]) -> None:
    wanted = ["configuration-1", "gone", "configuration-0"]
    assert [one.fingerprint for one in comparison.chosen(pair, wanted)] == ["configuration-1", "configuration-0"]


def test_equal_labels_are_told_apart(make_record: MakeRecord) -> None:
    seeds = [{"val/accuracy": 0.5, "decode/ms_per_token": 5.0}]
    same = group(make_record(({"num_loops": 1}, seeds), ({"num_loops": 1}, seeds)))
    same = [replace(one, fingerprint=name) for one, name in zip(same, ("3f0c99d1aa", "b17e42ff00"), strict=True)]
    assert comparison.labels(same) == ["R=1 (3f0c99)", "R=1 (b17e42)"]


def test_markdown_tables_have_one_cell_per_column(pair: list[ConfigurationRecord]) -> None:
    text = comparison.to_markdown("planted", pair, pair[0])
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2
    for table in tables:
        assert {line.count("|") for line in table} == {table[0].count("|")}
        assert table[1].replace("|", "").replace("-", "").strip() == ""
    assert "| decode/ms_per_token | 5.00 ms/token | 6.00 ms/token | +1.00 ms/token (+20.0 %) |" in text
