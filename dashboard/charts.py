"""From tables to figures: pure functions, no Streamlit.

Points carry the configuration's fingerprint first and then its trial numbers in `customdata`; positions in a trace
mean nothing, because they change as trials finish. Every figure leaves `dragmode` alone: with a select mode Streamlit
would lose clicks.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboard import formats, frames, palette
from orchestrator.constraints import Constraint
from orchestrator.formats import with_unit
from orchestrator.tracking.reader import Curve

_WEBGL_FROM = 5000
"""Points from which a chart is drawn by the graphics card."""
_OPACITY = {"front": 1.0, "dominated": 0.5, "infeasible": 0.9}


def trade_off_figure(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    directions: Mapping[str, frames.Direction],
    constraints: Sequence[Constraint] = (),
    picks: Sequence[str] = (),
) -> go.Figure:
    """One point per configuration with its intervals, the front in these two metrics, budgets, and the chosen points.

    Colour is the loop count, the symbol the gate, the size the window; an infeasible point is hollow.
    """
    results = frame[frame["standing"].isin(["front", "dominated", "infeasible"])]
    known = results.dropna(subset=[x, y])
    x_axis, y_axis = formats.axis(x, known[x]), formats.axis(y, known[y])
    figure = go.Figure()
    best = frames.front(known, x, y, directions[x], directions[y])
    shape = "hv" if directions[x] == "minimize" else "vh"
    if len(best) > 1:
        line = {"color": palette.GREY, "width": 1.5, "shape": shape, "dash": "dot"}
        _add(figure, best[x] / x_axis.scale, best[y] / y_axis.scale, "front", mode="lines", line=line, hoverinfo="skip")
    for num_loops, points in known.groupby("num_loops"):
        figure.add_trace(_points(points, x, y, x_axis.scale, y_axis.scale, f"{num_loops} loop{'s' * (num_loops != 1)}"))
    _add_untrained(figure, results[results[y].isna() & results[x].notna()], x, x_axis.scale)
    _add_gate_legend(figure, known)
    chosen = known[known["fingerprint"].isin(picks)]
    if len(chosen):
        ring = {"symbol": "circle-open", "size": 30, "color": palette.GREY, "line": {"width": 2}}
        _add(figure, chosen[x] / x_axis.scale, chosen[y] / y_axis.scale, "chosen", marker=ring, hoverinfo="skip")
    for constraint in constraints:
        _add_budget(figure, constraint, x, y, x_axis.scale, y_axis.scale)
    figure.update_xaxes(title=x_axis.title)
    figure.update_yaxes(title=y_axis.title)
    return _finished(figure, height=460)


def _points(points: pd.DataFrame, x: str, y: str, x_scale: float, y_scale: float, name: str) -> go.Scatter:
    colour = palette.loop_colour(int(points["num_loops"].iloc[0]))
    hollow = points["standing"] == "infeasible"
    symbols = points["gate"].map(palette.GATE_SYMBOLS) + hollow.map({True: "-open", False: ""})
    windows = [None if pd.isna(window) else int(window) for window in points["window"]]
    kind = go.Scattergl if len(points) > _WEBGL_FROM else go.Scatter
    return kind(
        x=points[x] / x_scale,
        y=points[y] / y_scale,
        name=name,
        mode="markers",
        error_x=_error_bars(points, x, x_scale, colour),
        error_y=_error_bars(points, y, y_scale, colour),
        marker={
            "color": colour,
            "symbol": list(symbols),
            "size": [palette.window_size_px(window) for window in windows],
            "opacity": [_OPACITY[standing] for standing in points["standing"]],
            "line": {"width": [2 if one else 0 for one in hollow], "color": colour},
        },
        customdata=_identities(points),
        text=[_hover(row, (y, x)) for _, row in points.iterrows()],
        hovertemplate="%{text}<extra></extra>",
    )


def _error_bars(points: pd.DataFrame, metric: str, scale: float, colour: str) -> dict[str, object]:
    mean, low, high = frames.metric_columns(metric)
    return {
        "type": "data",
        "symmetric": False,
        "array": (points[high] - points[mean]).astype(float) / scale,
        "arrayminus": (points[mean] - points[low]).astype(float) / scale,
        "color": colour,
        "thickness": 1,
        "width": 3,
    }


def _hover(row: pd.Series, metrics: Sequence[str]) -> str:
    trials = ", ".join(str(number) for number in row["trials"])
    lines = [f"<b>{row['label']}</b>", *(f"{formats.title(metric)}: {cell_text(row, metric)}" for metric in metrics)]
    return "<br>".join([*lines, f"{row['standing']}; {row['seeds']} seeds, trials {trials}"])


def cell_text(row: pd.Series, metric: str) -> str:
    """A metric of a row of the configurations' table as text: mean, half-width of its interval, unit."""
    mean, low, high = (row[column] for column in frames.metric_columns(metric))
    return frames.interval_text(metric, frames.to_interval(mean, low, high, int(row["seeds"])))


def _add(figure: go.Figure, x: object, y: object, name: str, mode: str = "markers", **how: object) -> None:
    figure.add_trace(go.Scatter(x=x, y=y, name=name, mode=mode, **how))


def _add_untrained(figure: go.Figure, points: pd.DataFrame, x: str, x_scale: float) -> None:
    """Configurations that broke a constraint before training: hollow, at the bottom edge, on an axis of their own."""
    if points.empty:
        return
    figure.add_trace(
        go.Scatter(
            x=points[x] / x_scale,
            y=[0.03] * len(points),
            yaxis="y2",
            name="infeasible, not trained",
            mode="markers",
            marker={
                "symbol": [palette.GATE_SYMBOLS[gate] + "-open" for gate in points["gate"]],
                "size": 11,
                "color": [palette.loop_colour(int(loops)) for loops in points["num_loops"]],
                "line": {"width": 2},
            },
            customdata=_identities(points),
            text=[_hover(row, (x,)) for _, row in points.iterrows()],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})


def _identities(points: pd.DataFrame) -> list[list[object]]:
    return [[row["fingerprint"], *row["trials"]] for _, row in points.iterrows()]


def picked(selection: Mapping[str, Any]) -> tuple[str, ...]:
    """Fingerprints of the points that a person clicked or boxed, from Streamlit's selection state."""
    points = selection["selection"]["points"]
    return tuple(dict.fromkeys(str(point["customdata"][0]) for point in points if point.get("customdata")))


def _add_gate_legend(figure: go.Figure, known: pd.DataFrame) -> None:
    for gate, symbol in palette.GATE_SYMBOLS.items():
        if (known["gate"] == gate).any():
            marker = {"symbol": symbol, "size": 10, "color": palette.GREY}
            _add(figure, [None], [None], gate, marker=marker, hoverinfo="skip")
    if (known["standing"] == "infeasible").any():
        marker = {"symbol": "circle-open", "size": 10, "color": palette.GREY, "line": {"width": 2}}
        _add(figure, [None], [None], "infeasible", marker=marker, hoverinfo="skip")


def _add_budget(figure: go.Figure, constraint: Constraint, x: str, y: str, x_scale: float, y_scale: float) -> None:
    line = {"color": palette.RED, "width": 1.5, "dash": "dash"}
    sign = {"<=": "≤", ">=": "≥"}.get(constraint.operator, constraint.operator)
    text = f" {sign} {with_unit(constraint.metric, constraint.bound)}"
    if constraint.metric == x:
        figure.add_vline(x=constraint.bound / x_scale, line=line, annotation_text=text, annotation_position="top right")
    elif constraint.metric == y:
        figure.add_hline(y=constraint.bound / y_scale, line=line, annotation_text=text, annotation_position="top left")


def curves_figure(curves: Mapping[str, Sequence[Curve]], metric: str, by: str) -> go.Figure:
    """Learning curves: a colour per label, a line per seed; a value that was not finite is a gap."""
    figure = go.Figure()
    count = sum(len(curve.steps) for seeds in curves.values() for curve in seeds)
    kind = go.Scattergl if count > _WEBGL_FROM else go.Scatter
    for index, (label, seeds) in enumerate(curves.items()):
        for position, curve in enumerate(seeds):
            figure.add_trace(
                kind(
                    x=curve.tokens if by == "tokens" else curve.steps,
                    y=curve.values,
                    name=label,
                    legendgroup=label,
                    showlegend=position == 0,
                    mode="lines+markers" if len(curve.steps) < 20 else "lines",
                    line={"color": palette.series_colour(index), "width": 2 if len(seeds) == 1 else 1.5},
                    marker={"size": 5},
                    opacity=1.0 if position == 0 else 0.6,
                    connectgaps=False,
                )
            )
    figure.update_xaxes(title="Training tokens" if by == "tokens" else "Optimizer steps")
    figure.update_yaxes(title=formats.axis(metric, ()).title)
    return _finished(figure, height=380)


def bars_figure(labels: Sequence[str], rows: pd.DataFrame, metric: str) -> go.Figure:
    """One bar per configuration with its interval, in the order and colours of the comparison."""
    mean, low, high = frames.metric_columns(metric)
    axis = formats.axis(metric, rows[mean].dropna())
    figure = go.Figure(
        go.Bar(
            x=rows[mean] / axis.scale,
            y=list(labels),
            orientation="h",
            marker={"color": [palette.series_colour(index) for index in range(len(labels))]},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": (rows[high] - rows[mean]).astype(float) / axis.scale,
                "arrayminus": (rows[mean] - rows[low]).astype(float) / axis.scale,
                "color": palette.GREY,
            },
            text=[
                cell_text(row, metric) if not math.isnan(row[mean]) else "not measured" for _, row in rows.iterrows()
            ],
            textposition="inside",
            insidetextanchor="start",
            hoverinfo="skip",
        )
    )
    figure.update_xaxes(title=axis.title, rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return _finished(figure, height=120 + 44 * len(labels))


def _finished(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 30, "b": 10},
        legend={"orientation": "h", "yanchor": "top", "y": -0.18, "x": 0.0, "itemsizing": "constant"},
        hoverlabel={"align": "left"},
    )
    return figure
