"""What figures have in common, learning curves and bars: pure functions, no Streamlit."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboard import formats, frames, palette
from dashboard.configuration_rows import metric_columns
from orchestrator.tracking.reader import Curve

WEBGL_FROM = 5000
"""Points from which a chart is drawn by the graphics card."""
_CURVE_AXES: Mapping[str, str] = {
    "step": "Optimizer steps",
    "tokens": "Training tokens",
    "time": "Seconds since the attempt began",
}


def curves_figure(curves: Mapping[str, Sequence[Curve]], metric: str, by: str, smooth: int = 1) -> go.Figure:
    """Learning curves: a colour per label, a line per seed; a value that was not finite is a gap.

    With `smooth`, a point is the mean of so many reports up to it.
    """
    figure = go.Figure()
    count = sum(len(curve.steps) for seeds in curves.values() for curve in seeds)
    kind = go.Scattergl if count > WEBGL_FROM else go.Scatter
    for index, (label, seeds) in enumerate(curves.items()):
        for position, curve in enumerate(seeds):
            figure.add_trace(
                kind(
                    x={"tokens": curve.tokens, "time": curve.seconds}.get(by, curve.steps),
                    y=smoothed(curve.values, smooth),
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
    figure.update_xaxes(title=_CURVE_AXES[by])
    figure.update_yaxes(title=formats.axis(metric, ()).title)
    return finished(figure, height=380)


def smoothed(values: Sequence[float], window: int) -> list[float]:
    """The mean of the last `window` values at each place; a value that is not finite stays a gap and counts nowhere."""
    if window <= 1:
        return list(values)
    series = pd.Series(values, dtype=float)
    means = series.rolling(window, min_periods=1).mean()
    return list(means.where(series.notna()))


def bars_figure(labels: Sequence[str], rows: pd.DataFrame, metric: str) -> go.Figure:
    """One bar per configuration with its interval, in the order and colours of the comparison."""
    mean = metric
    axis = formats.axis(metric, rows[mean].dropna())
    figure = go.Figure(
        go.Bar(
            x=rows[mean] / axis.scale,
            y=list(labels),
            orientation="h",
            marker={"color": [palette.series_colour(index) for index in range(len(labels))]},
            error_x=error_bars(rows, metric, axis.scale, palette.GREY),
            text=[
                cell_text(row, metric) if not math.isnan(row[mean]) else "not measured"
                for row in rows.to_dict("records")
            ],
            textposition="inside",
            insidetextanchor="start",
            hoverinfo="skip",
        )
    )
    figure.update_xaxes(title=axis.title, rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return finished(figure, height=120 + 44 * len(labels))


def finished(figure: go.Figure, height: int) -> go.Figure:
    """The same margins, legend and hover everywhere."""
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 30, "b": 10},
        legend={"orientation": "h", "yanchor": "top", "y": -75 / (height - 120), "x": 0.0, "itemsizing": "constant"},
        hoverlabel={"align": "left"},
    )
    return figure


def error_bars(points: pd.DataFrame, metric: str, scale: float, colour: str) -> dict[str, object]:
    """A metric's 95 % intervals around its means."""
    mean, low, high = metric_columns(metric)
    return {
        "type": "data",
        "symmetric": False,
        "array": (points[high] - points[mean]).to_numpy(float) / scale,
        "arrayminus": (points[mean] - points[low]).to_numpy(float) / scale,
        "color": colour,
        "thickness": 1,
        "width": 3,
    }


def cell_text(row: Mapping[Any, Any], metric: str) -> str:
    """A metric of a row of the configurations' table as text: mean, half-width of its interval, unit."""
    mean, low, high = (row[column] for column in metric_columns(metric))
    return frames.interval_text(metric, frames.to_interval(mean, low, high, int(row["seeds"])))
