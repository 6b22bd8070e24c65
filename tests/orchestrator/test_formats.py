import pytest

from orchestrator.formats import byte_count, duration, knob, number, unit, with_interval, with_unit
from orchestrator.spec.metrics import produced
from orchestrator.statistics import interval
from workers.config import BenchmarkConfig, DataConfig


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("decode/ms_per_token", 7.126, "7.13 ms/token"),
        ("b8/decode/ms_per_token_p95", 12.0, "12.00 ms/token"),
        ("prefill/ms", 3.0, "3.00 ms"),
        ("kv/bytes_per_sequence", 4 * 2**20, "4.00 MiB"),
        ("kv/bytes_per_sequence", 512, "512 B"),
        ("kv/ratio", 1.125, "1.125 x"),
        ("decode/latency_ratio", 1.02, "1.020 x"),
        ("val/bits_per_byte", 2.12345, "2.1235 bits/byte"),
        ("tasks/phop/accuracy", 0.93751, "0.938"),
        ("val/loss", 1.5, "1.5000 nats/token"),
        ("train/tokens", 800_000, "800.00 k tokens"),
        ("train/seconds", 61.24, "61.2 s"),
        ("model/parameters", 111_000_000, "111.00 M parameters"),
        ("train/lr", 0.0004, "0.0004"),
    ],
)
def test_every_number_has_its_unit(metric: str, value: float, text: str) -> None:
    assert with_unit(metric, value) == text


def test_no_metric_that_we_produce_lacks_a_unit_unless_it_is_a_share() -> None:
    everything = DataConfig(
        corpus="stdlib + phop + addition + igsm + variables + tracking + mano + depo", code_sets="humaneval+mbpp"
    )
    bare = {metric for metric in produced([everything], BenchmarkConfig()) if not unit(metric)}
    assert {metric.rsplit("/", 1)[-1] for metric in bare} == {"accuracy", "majority", "roofline_fraction"}
    assert {"tasks/depo/accuracy", "tasks/phop/majority", "decode/roofline_fraction"} <= bare


def test_intervals_are_shown_only_when_there_are_seeds() -> None:
    assert with_interval("val/bits_per_byte", interval([2.0])) == "2.0000"
    assert with_interval("val/bits_per_byte", interval([1.0, 2.0, 3.0])) == "2.0000 ± 2.4841"  # t(0.975, 2) / sqrt(3)


def test_durations_and_byte_counts() -> None:
    assert [duration(seconds) for seconds in (0.4, 42, 185, 7620)] == ["0 s", "42 s", "3 min 05 s", "2 h 07 min"]
    assert [byte_count(value) for value in (0, 1023, 1024, 5 * 2**30)] == ["0 B", "1023 B", "1.00 KiB", "5.00 GiB"]
    assert number("kv/carry_bytes_per_sequence", 2048) == "2.00 KiB"


def test_drawn_numbers_are_short_and_others_as_they_are() -> None:
    assert [knob(value) for value in (0.005191063941346814, 0.5, 16, "learned", None)] == [
        "0.005191", "0.5", "16", "learned", "None",
    ]  # fmt: skip
