"""Figures say what the tables say: positions, bars, colours, symbols, identities; an infeasible point is hollow."""

import io
import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from dashboard import charts, frames, palette, trade_off_chart
from orchestrator.configurations import group
from orchestrator.constraints import parse_constraint
from orchestrator.export import exported
from orchestrator.records import StudyRecord
from orchestrator.tracking.reader import Curve

MakeRecord = Callable[..., StudyRecord]
X, Y = "decode/ms_per_token", "val/accuracy"
DIRECTIONS: dict[str, frames.Direction] = {X: "minimize", Y: "maximize", "kv/bytes_per_sequence": "minimize"}


def seeds(accuracy: list[float], cost: float, kv: float = 524288.0) -> list[dict[str, float]]:
    return [{Y: value, X: cost + seed / 10, "kv/bytes_per_sequence": kv} for seed, value in enumerate(accuracy)]


@pytest.fixture
def study(make_record: MakeRecord) -> StudyRecord:
    swa = {"local": "swa", "window": 8}
    return make_record(
        ({"num_loops": 1}, seeds([0.40, 0.42], 5.0)),
        ({"num_loops": 2, **swa, "gate_mode": "learned"}, seeds([0.60, 0.64], 5.5)),
        ({"num_loops": 2, **swa, "gate_mode": 0.5, "window": 64}, seeds([0.50, 0.54], 5.6)),
        ({"num_loops": 3, **swa, "gate_mode": "learned"}, seeds([0.90, 0.94], 8.0)),
        ({"num_loops": 4}, []),
        constraints=("decode/ms_per_token <= 7",),
    )


@pytest.fixture
def figure(study: StudyRecord) -> go.Figure:
    return draw(study)


def draw(study: StudyRecord, x: str = X, y: str = Y, **how: Any) -> go.Figure:
    limits = [parse_constraint(text) for text in study.constraints]
    frame = frames.configurations_frame(study, group(study))
    return trade_off_chart.trade_off_figure(frame, x, y, directions=DIRECTIONS, constraints=limits, **how)


def traces(figure: go.Figure, name: str) -> list[Any]:
    return [one for one in figure.data if one.name == name]


def trace(figure: go.Figure, name: str) -> Any:
    [only] = traces(figure, name)
    return only


def test_points_are_means_with_intervals_from_seeds(study: StudyRecord, figure: go.Figure) -> None:
    points, others = traces(figure, "2 loops")
    first = group(study)[1]
    assert [*points.y, *others.y] == pytest.approx([0.62, 0.52])
    assert [*points.x, *others.x] == pytest.approx([5.55, 5.65])
    accuracy, latency = first.metrics[Y], first.metrics[X]
    assert accuracy.high is not None
    assert points.error_y.array[0] == pytest.approx(accuracy.high - accuracy.mean)
    assert (latency.low, latency.n) == (None, 1)  # measured once: every seed carries a copy
    assert not [width for width in points.error_x.array if width == width and width > 0]


def test_points_carry_fingerprint_and_trial_numbers(figure: go.Figure) -> None:
    assert [list(one) for points in traces(figure, "2 loops") for one in points.customdata] == [
        ["configuration-1", 2, 3],
        ["configuration-2", 4, 5],
    ]


def test_colour_is_loops_symbol_is_gate_size_is_window(figure: go.Figure) -> None:
    learned, fixed = traces(figure, "2 loops")
    assert learned.marker.color == fixed.marker.color == palette.loop_colour(2)
    assert [learned.marker.symbol, fixed.marker.symbol] == ["diamond", "square"]
    assert fixed.marker.size[0] > learned.marker.size[0]
    assert [learned.showlegend, fixed.showlegend] == [True, False]
    assert learned.legendgroup == fixed.legendgroup
    assert trace(figure, "1 loop").marker.symbol == "circle"
    assert trace(figure, "1 loop").marker.color == palette.loop_colour(1)


def test_an_infeasible_point_is_hollow_and_off_the_front(figure: go.Figure) -> None:
    assert trace(figure, "3 loops").marker.symbol == "diamond-open"
    best = trace(figure, "front")
    assert list(best.y) == pytest.approx([0.41, 0.62])
    assert best.line.shape == "hv"


def test_a_failed_configuration_is_not_drawn(figure: go.Figure) -> None:
    assert "4 loops" not in [one.name for one in figure.data]


def test_a_budget_is_a_line_where_its_metric_is_an_axis(study: StudyRecord, figure: go.Figure) -> None:
    [line] = figure.layout.shapes
    assert (line.x0, line.x1) == (7, 7)
    assert "≤ 7.00 ms/token" in figure.layout.annotations[0].text
    assert not draw(study, x="kv/bytes_per_sequence").layout.shapes


def test_bytes_are_drawn_in_the_unit_that_the_axis_names(study: StudyRecord) -> None:
    figure = draw(study, x="kv/bytes_per_sequence")
    assert list(trace(figure, "1 loop").x) == [512.0]
    assert figure.layout.xaxis.title.text == "KV cache per sequence (KiB)"


def test_chosen_points_are_ringed(study: StudyRecord) -> None:
    rings = trace(draw(study, picks=["configuration-0", "gone"]), "chosen")
    assert list(rings.y) == pytest.approx([0.41])
    assert rings.hoverinfo == "skip"


def test_what_broke_a_constraint_before_training_stands_at_the_edge(make_record: MakeRecord) -> None:
    study = make_record(
        ({"num_loops": 1}, [{X: 5.0, Y: 0.4}]),
        ({"num_loops": 3}, [{X: 9.0}]),
        constraints=("decode/ms_per_token <= 7",),
    )
    edge = trace(draw(study), "infeasible, not trained")
    assert list(edge.x) == [9.0]
    assert edge.yaxis == "y2"
    assert list(edge.customdata[0]) == ["configuration-1", 1]
    assert edge.marker.symbol[0].endswith("-open")


def test_dragmode_is_left_to_streamlit(figure: go.Figure) -> None:
    assert figure.layout.dragmode is None


def test_one_point_has_no_bars_and_no_front(make_record: MakeRecord) -> None:
    figure = draw(make_record(({"num_loops": 1}, [{X: 5.0, Y: 0.4}])))
    assert math.isnan(trace(figure, "1 loop").error_y.array[0])
    assert "front" not in [one.name for one in figure.data]


def test_a_selection_gives_fingerprints_once_and_skips_what_is_no_configuration() -> None:
    points = [{"customdata": ["b", 1]}, {"customdata": ["a", 2]}, {"x": 1.0}, {"customdata": ["b", 1]}]
    assert trade_off_chart.picked({"selection": {"points": points}}, dict) == ("b", "a")
    assert trade_off_chart.picked({"selection": {"points": []}}, dict) == ()


def test_curves_share_a_colour_per_label_and_keep_gaps() -> None:
    one = Curve(steps=(1, 2, 3), tokens=(64.0, 128.0, 192.0), values=(3.0, math.nan, 2.0))
    two = Curve(steps=(1, 2), tokens=(64.0, 128.0), values=(4.0, 3.5))
    figure = charts.curves_figure({"R=1": [one, two], "R=2": [two]}, "train/loss", "tokens")

    assert [line.name for line in figure.data] == ["R=1", "R=1", "R=2"]
    assert [line.showlegend for line in figure.data] == [True, False, True]
    assert figure.data[0].line.color == figure.data[1].line.color != figure.data[2].line.color
    assert list(figure.data[0].x) == [64.0, 128.0, 192.0]
    assert math.isnan(figure.data[0].y[1])
    assert figure.data[0].connectgaps is False
    assert list(charts.curves_figure({"R=1": [one]}, "train/loss", "step").data[0].x) == [1, 2, 3]


def test_many_points_are_drawn_by_the_graphics_card() -> None:
    steps = tuple(range(3000))
    curve = Curve(steps=steps, tokens=tuple(map(float, steps)), values=tuple(map(float, steps)))
    assert {line.type for line in charts.curves_figure({"a": [curve]}, "train/loss", "step").data} == {"scatter"}
    assert {line.type for line in charts.curves_figure({"a": [curve] * 2}, "train/loss", "step").data} == {"scattergl"}


def test_bars_have_means_intervals_and_the_comparisons_colours(study: StudyRecord) -> None:
    rows = frames.configurations_frame(study, group(study)).iloc[[1, 0]]
    [bars] = charts.bars_figure(["second", "first"], rows, X).data
    assert list(bars.x) == pytest.approx([5.55, 5.05])
    assert list(bars.y) == ["second", "first"]
    assert list(bars.marker.color) == [palette.series_colour(0), palette.series_colour(1)]
    assert bars.text[0] == "5.55 ms/token"
    [scores] = charts.bars_figure(["second", "first"], rows, Y).data
    interval = group(study)[1].metrics[Y]
    assert interval.high is not None
    assert scores.error_x.array[0] == pytest.approx(interval.high - interval.mean)
    assert scores.text[0].startswith("0.620 ± ")


def test_the_points_are_the_means_of_what_plt_export_writes(study: StudyRecord) -> None:
    """Read back from the file, grouped and averaged by pandas: nothing of ours in between."""
    table = pd.read_csv(io.BytesIO(exported(study, "csv")))
    complete = table[(table["state"] == "COMPLETE") & table[f"metrics.{Y}"].notna()]
    means = complete.groupby("configuration")[[f"metrics.{X}", f"metrics.{Y}"]].mean()
    drawn = {
        str(identity[0]): (x, y)
        for one in draw(study).data
        if one.customdata is not None
        for identity, x, y in zip(one.customdata, one.x, one.y, strict=True)
    }
    assert set(drawn) == set(means.index)
    for fingerprint, point in drawn.items():
        assert point == pytest.approx(tuple(means.loc[fingerprint]))


def test_what_a_reader_would_not_spend_is_faint_and_off_the_front(study: StudyRecord) -> None:
    frame = frames.within(frames.configurations_frame(study, group(study)), {X: 5.2})
    figure = trade_off_chart.trade_off_figure(frame, X, Y, directions=DIRECTIONS, budgets={X: 5.2})
    assert {one for points in traces(figure, "2 loops") for one in points.marker.opacity} == {0.15}
    assert "front" not in [one.name for one in figure.data]  # one point is left
    assert [line.x0 for line in figure.layout.shapes] == [5.2]


def test_many_points_have_bars_only_on_the_front(make_record: MakeRecord) -> None:
    rows = [({"num_loops": 1, "window": n}, seeds([n / 1e4, n / 1e4 + 0.1], 5.0 + n / 1e3)) for n in range(29)]
    record = make_record(*rows)
    frame = frames.configurations_frame(record, group(record))
    many = pd.concat([frame] * 80, ignore_index=True)
    figure = trade_off_chart.trade_off_figure(many, X, Y, directions=DIRECTIONS)
    points, bars = trace(figure, "1 loop"), trace(figure, "bars of the front")
    assert points.error_y.array is None
    best = many[many["standing"] == "front"]
    assert sorted(zip(bars.x, bars.y, strict=True)) == sorted(zip(best[X], best[Y], strict=True))
    assert list(bars.error_y.array) == pytest.approx(list(best[f"{Y} high"] - best[Y]))
    owners = {trial.number: trial.configuration for trial in record.trials}
    chosen = [{"customdata": int(points.customdata[index])} for index in (3, 0, 29)]
    picked = trade_off_chart.picked({"selection": {"points": [*chosen, {"customdata": 10**6}]}}, lambda: owners)
    assert picked == ("configuration-3", "configuration-0")
