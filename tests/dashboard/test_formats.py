"""Units, labels and kinds, against values written out by hand."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dashboard import formats


@pytest.mark.parametrize(
    ("metric", "values", "title", "scale"),
    [
        ("decode/ms_per_token", [5.0], "Decode latency (ms/token)", 1.0),
        ("kv/bytes_per_sequence", [524288.0, 655360.0], "KV cache per sequence (KiB)", 1024.0),
        ("kv/bytes_per_sequence", [524288.0, 4194304.0], "KV cache per sequence (MiB)", 1048576.0),
        ("kv/bytes_per_sequence", [512.0], "KV cache per sequence (B)", 1.0),
        ("kv/bytes_per_sequence", [], "KV cache per sequence (B)", 1.0),
        ("val/bits_per_byte", [2.0], "Held-out bits per byte", 1.0),
        ("tasks/p-hop/accuracy", [0.5], "tasks/p-hop/accuracy", 1.0),
        ("tasks/phop/accuracy", [0.5], "p-hop accuracy", 1.0),
        ("tasks/addition/depth16/accuracy", [0.5], "addition accuracy at depth 16", 1.0),
        ("tasks/mano/extrapolation/majority", [0.5], "mano majority baseline beyond the trained depths", 1.0),
        ("tasks/tracking/sequences/accuracy", [0.5], "tracking accuracy of whole sequences", 1.0),
    ],
)
def test_axes_have_titles_with_units_that_fit(metric: str, values: list[float], title: str, scale: float) -> None:
    assert formats.axis(metric, values) == formats.Axis(title, scale)


@pytest.mark.parametrize(
    ("params", "label"),
    [
        ({}, "all"),
        ({"num_loops": 1}, "R=1"),
        ({"num_loops": 2, "window": 16, "gate_mode": "learned"}, "R=2 · window 16 · gate learned"),
        ({"variant": "loop+clp", "lr": 0.003}, "loop+clp · lr=0.003"),
        ({"window": 8.0, "gate_mode": 0.5}, "window 8 · gate 0.5"),
    ],
)
def test_configurations_are_named_by_what_was_searched(params: dict[str, object], label: str) -> None:
    assert formats.configuration_label(params) == label


@pytest.mark.parametrize(
    ("knobs", "kind"),
    [
        ({}, "no local branch"),
        ({"num_loops": 1, "local": "swa", "gate_mode": "learned"}, "no local branch"),
        ({"num_loops": 2, "local": "none"}, "no local branch"),
        ({"num_loops": 2, "local": "swa", "gate_mode": "learned"}, "learned gate"),
        ({"num_loops": 2, "local": "swa", "gate_mode": None}, "learned gate"),
        ({"num_loops": 2, "local": "swa", "gate_mode": 0.0}, "fixed gate"),
    ],
)
def test_gates_are_of_three_kinds(knobs: dict[str, object], kind: str) -> None:
    assert formats.gate_kind(knobs) == kind


def test_times_are_shown_in_one_zone() -> None:
    tokyo = timezone(timedelta(hours=9))
    assert formats.moment(datetime(2026, 5, 1, 9, 30, tzinfo=tokyo)) == "2026-05-01 00:30:00 UTC"
    assert formats.moment(datetime(2026, 5, 1, 0, 30, tzinfo=UTC)) == "2026-05-01 00:30:00 UTC"
    assert formats.moment(None) == "-"
