"""What parameters do to a metric, as figures: importance, parallel coordinates, slices and a map of two. Pure.

They show the means of configurations that are complete; an infeasible one is drawn hollow or grey. Parallel
coordinates give no selection back: that is Plotly's limit.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboard import formats, frames, palette
from dashboard.charts import WEBGL_FROM, finished
from orchestrator.importance import Importance

_SCALE = [[0.0, palette.BLUE], [0.5, palette.GREY], [1.0, palette.ORANGE]]
"""Readable by people with any kind of colour vision, on light and dark ground."""
_MOST_LINES, _MOST_POINTS = 500, 2_000
_COMPLETE = ("front", "dominated", "infeasible")


def complete(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Rows that have a final value of the metric."""
    return frame[frame["standing"].isin(_COMPLETE)].dropna(subset=[metric])


def importance_figure(found: Sequence[Importance]) -> go.Figure:
    """A bar per parameter; a conditional one, which is judged among its own points only, is hatched."""
    shown = list(reversed(found))
    figure = go.Figure(
        go.Bar(
            x=[one.share for one in shown],
            y=[one.param if one.always else f"{one.param} (where it applies)" for one in shown],
            orientation="h",
            marker={"color": palette.BLUE, "pattern": {"shape": ["" if one.always else "/" for one in shown]}},
            text=[f"{100 * one.share:.0f} %" for one in shown],
            customdata=[[one.trials] for one in shown],
            hovertemplate="%{y}: %{x:.3f}, from %{customdata[0]} trials<extra></extra>",
        )
    )
    figure.update_xaxes(title="Importance", range=[0, 1.08])
    return finished(figure, height=110 + 36 * len(shown))


def parallel_figure(frame: pd.DataFrame, search: Sequence[str], metrics: Sequence[str]) -> go.Figure:
    """A line per configuration through its parameters and metrics, coloured by the first metric.

    At most 500 lines, the front among them.
    """
    rows = complete(frame, metrics[0])
    if len(rows) > _MOST_LINES:
        order = (rows["standing"] != "front").argsort(kind="stable")
        rows = rows.iloc[order].head(_MOST_LINES)
    axis = formats.axis(metrics[0], rows[metrics[0]])
    dimensions = [_dimension(rows[name], name) for name in search if name in rows]
    for metric in metrics:
        scaled = formats.axis(metric, rows[metric].dropna())
        values = rows[metric].astype(float) / scaled.scale
        dimensions.append({"label": scaled.title, "values": values.fillna(values.min())})
    line = {
        "color": rows[metrics[0]].to_numpy(float) / axis.scale,
        "colorscale": _SCALE,
        "showscale": True,
        "colorbar": {"title": {"text": axis.title, "side": "right"}, "thickness": 12},
    }
    figure = go.Figure(go.Parcoords(line=line, dimensions=dimensions, labelangle=-12, labelside="bottom"))
    finished(figure, height=420)
    return figure.update_layout(margin={"l": 50, "r": 30, "t": 30, "b": 70})


def _dimension(values: pd.Series, name: str) -> dict[str, object]:
    """One axis: numbers as they are, anything else and what does not apply as evenly spaced words."""
    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.notna().all():
        distinct = sorted(set(numbers))
        ticks = {"tickvals": distinct, "ticktext": [f"{one:g}" for one in distinct]} if len(distinct) <= 8 else {}
        return {"label": name, "values": numbers, **ticks}
    words = [formats.plain(value) for value in values]
    distinct_words = sorted(set(words), key=_order)
    places = {word: place for place, word in enumerate(distinct_words)}
    return {
        "label": name,
        "values": [places[word] for word in words],
        "tickvals": list(range(len(distinct_words))),
        "ticktext": distinct_words,
    }


def _order(word: str) -> tuple[int, float, str]:
    """Nothing first, numbers by size, words by alphabet."""
    try:
        return (1, float(word), "")
    except ValueError:
        return (0 if word == "-" else 2, 0.0, word)


def slice_figure(frame: pd.DataFrame, param: str, metric: str) -> go.Figure:
    """The metric by one parameter, over everything else; colour is the loop count, an infeasible point is hollow.

    At most about 2,000 points, the front among them.
    """
    rows = complete(frame, metric)
    rows = _sample(rows[rows[param].notna()] if param in rows else rows.head(0))
    axis = formats.axis(metric, rows[metric])
    kind = go.Scattergl if len(rows) > WEBGL_FROM else go.Scatter
    numeric = pd.to_numeric(rows[param], errors="coerce").notna().all()
    figure = go.Figure()
    for num_loops, points in rows.groupby("num_loops"):
        hollow = points["standing"] == "infeasible"
        figure.add_trace(
            kind(
                x=points[param].astype(float) if numeric else [formats.plain(value) for value in points[param]],
                y=points[metric].to_numpy(float) / axis.scale,
                name=f"{num_loops} loop{'s' * (num_loops != 1)}",
                mode="markers",
                marker={
                    "color": palette.loop_colour(int(points["num_loops"].iloc[0])),
                    "symbol": ["circle-open" if one else "circle" for one in hollow],
                    "size": 9,
                    "opacity": 0.8,
                },
                text=points["label"],
                customdata=points["fingerprint"],
                hovertemplate="%{text}<br>%{y:.5g}<extra></extra>",
            )
        )
    figure.update_xaxes(title=param, **(_numeric_axis(rows[param].astype(float)) if numeric else {"type": "category"}))
    figure.update_yaxes(title=axis.title)
    return finished(figure, height=300)


def _sample(rows: pd.DataFrame) -> pd.DataFrame:
    """At most so many rows, evenly spaced over the study, the front among them."""
    step = -(-len(rows) // _MOST_POINTS) if len(rows) else 1
    kept = rows["standing"] == "front"
    kept.iloc[::step] = True
    return rows[kept]


def _numeric_axis(values: pd.Series) -> dict[str, object]:
    """Logarithmic over decades, and with a tick at every value where they are few."""
    kind = {"type": "log"} if len(values) and _spans_decades(values) else {}
    distinct = sorted(set(values))
    return kind | ({"tickvals": distinct} if len(distinct) <= 6 else {})


def _spans_decades(values: pd.Series) -> bool:
    return bool(values.min() > 0 and values.max() / values.min() >= 30)


def map_figure(
    frame: pd.DataFrame, first: str, second: str, metric: str, direction: frames.Direction
) -> go.Figure | None:
    """The best mean at every pair of values of two parameters; ranges are cut into ten parts. None without any pair."""
    rows = complete(frame, metric)
    rows = rows[rows["standing"] != "infeasible"].dropna(subset=[first, second])
    if rows.empty:
        return None
    axis = formats.axis(metric, rows[metric])
    cells = rows.assign(across=_parts(rows[first]), up=_parts(rows[second]))
    grouped = cells.groupby(["up", "across"], observed=True)[metric]
    table = (grouped.min() if direction == "minimize" else grouped.max()).unstack("across")
    table = table.reindex(index=sorted(table.index, key=_order), columns=sorted(table.columns, key=_order))
    values = table.to_numpy(float) / axis.scale
    figure = go.Figure(
        go.Heatmap(
            x=list(table.columns),
            y=list(table.index),
            z=values,
            colorscale=_SCALE,
            reversescale=direction == "minimize",
            texttemplate="%{z:.4g}" if values.size <= 60 else None,
            colorbar={"title": {"text": axis.title, "side": "right"}, "thickness": 12},
            hovertemplate=f"{first} %{{x}}, {second} %{{y}}: %{{z:.5g}}<extra></extra>",
            xgap=2,
            ygap=2,
        )
    )
    figure.update_xaxes(title=first, type="category")
    figure.update_yaxes(title=second, type="category")
    return finished(figure, height=380)


def _parts(values: pd.Series) -> list[str]:
    """Values as words; of many numbers, the middle of the tenth that each lies in."""
    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.isna().any() or numbers.nunique() <= 12:
        return [formats.plain(value) for value in values]
    log = _spans_decades(numbers)
    scaled = np.log(numbers) if log else numbers
    low, high = float(scaled.min()), float(scaled.max())
    part = np.minimum(((scaled - low) / (high - low) * 10).astype(int), 9)
    middles = low + (part + 0.5) * (high - low) / 10
    return [f"{math.exp(one) if log else one:.3g}" for one in middles]
