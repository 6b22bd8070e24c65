"""The trade-off between two metrics as a figure: pure functions, no Streamlit.

Points carry the configuration's fingerprint first and then its trial numbers in `customdata`; positions in a trace
mean nothing, because they change as trials finish. The figure leaves `dragmode` alone: with a select mode Streamlit
would lose clicks. Beyond `FEW` points only those on the front have error bars, hovering tells means, and no point
carries trial numbers or long words: arrays of short text reach the browser without a look at every single one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboard import formats, frames, palette
from dashboard.charts import WEBGL_FROM, cell_text, error_bars, finished
from dashboard.configuration_rows import FIXED, metric_columns
from orchestrator.constraints import Constraint
from orchestrator.formats import with_unit

FEW = 2_000
"""Points up to which each has its error bars and its own words."""
_SHORT = 60
"""Characters of a point's own words beyond that."""
_DRAWN = ("front", "dominated", "infeasible", "outside")
_TEXTS = dict.fromkeys(("fingerprint", "label", "gate", "standing"), object)
"""Columns that are cut apart many times, which Arrow's strings are slow at."""
_OPACITY = {"front": 1.0, "dominated": 0.5, "infeasible": 0.9, "outside": 0.15}


def trade_off_figure(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    directions: Mapping[str, frames.Direction],
    constraints: Sequence[Constraint] = (),
    budgets: Mapping[str, float] | None = None,
    picks: Sequence[str] = (),
) -> go.Figure:
    """One point per configuration with its intervals, the front in these two metrics, budgets, and the chosen points.

    Colour is the loop count, the symbol the gate, the size the window; an infeasible point is hollow, one outside the
    reader's own budgets is faint.
    """
    columns = list(dict.fromkeys((*FIXED, *metric_columns(x), *metric_columns(y))))
    results = frame.loc[frame["standing"].isin(_DRAWN), columns].astype(_TEXTS)
    known = results.dropna(subset=[x, y])
    x_axis, y_axis = formats.axis(x, known[x]), formats.axis(y, known[y])
    few = len(known) <= FEW
    figure = go.Figure()
    best = frames.front(known, x, y, directions[x], directions[y])
    shape = "hv" if directions[x] == "minimize" else "vh"
    if not few:
        _add_bars(figure, known[known["standing"] == "front"], (x, x_axis.scale), (y, y_axis.scale))
    if len(best) > 1:
        line = {"color": palette.GREY, "width": 1.5, "shape": shape, "dash": "dot"}
        _add(figure, best[x] / x_axis.scale, best[y] / y_axis.scale, "front", mode="lines", line=line, hoverinfo="skip")
    kind = "scattergl" if len(known) > WEBGL_FROM else "scatter"
    symbols: pd.Series = known["gate"].map(palette.GATE_SYMBOLS) + np.where(
        known["standing"] == "infeasible", "-open", ""
    )
    for num_loops, alike in known.groupby("num_loops"):
        name = f"{num_loops} loop{'s' * (num_loops != 1)}"
        for position, (symbol, points) in enumerate(alike.groupby(symbols.loc[alike.index], sort=False)):
            shown = {"type": kind, "name": name, "legendgroup": name, "showlegend": position == 0}
            figure.add_trace(shown | _points(points, x, y, x_axis.scale, y_axis.scale, str(symbol), few))
    _add_untrained(figure, results[results[y].isna() & results[x].notna()], x, x_axis.scale)
    _add_gate_legend(figure, known)
    chosen = known[known["fingerprint"].isin(picks)]
    if len(chosen):
        ring = {"symbol": "circle-open", "size": 30, "color": palette.GREY, "line": {"width": 2}}
        _add(figure, chosen[x] / x_axis.scale, chosen[y] / y_axis.scale, "chosen", marker=ring, hoverinfo="skip")
    for constraint in constraints:
        _add_bound(figure, constraint, x, y, x_axis.scale, y_axis.scale, palette.RED, "top")
    for metric, bound in (budgets or {}).items():
        own = Constraint(metric=metric, operator="<=", bound=bound)
        _add_bound(figure, own, x, y, x_axis.scale, y_axis.scale, palette.PURPLE, "bottom")
    figure.update_xaxes(title=x_axis.title)
    figure.update_yaxes(title=y_axis.title)
    return finished(figure, height=460)


def _points(
    points: pd.DataFrame, x: str, y: str, x_scale: float, y_scale: float, symbol: str, few: bool
) -> dict[str, Any]:
    """What a trace shows, points of one loop count and one symbol: plotly looks at every single one of many symbols."""
    colour = palette.loop_colour(int(points["num_loops"].iloc[0]))
    if few:
        words = {
            "text": [_hover(row, (y, x)) for row in points.to_dict("records")],
            "hovertemplate": "%{text}<extra></extra>",
            "error_x": error_bars(points, x, x_scale, colour),
            "error_y": error_bars(points, y, y_scale, colour),
        }
    else:
        words = {
            "text": np.array([text if len(text) <= _SHORT else text[:_SHORT] + "…" for text in points["label"]]),
            "hovertemplate": "%{text}<br>%{y:.5g} against %{x:.5g}<extra></extra>",
        }
    return {
        "x": points[x].to_numpy(float) / x_scale,
        "y": points[y].to_numpy(float) / y_scale,
        "mode": "markers",
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": points["window"].map(_sizes(points)).to_numpy(float),
            "opacity": points["standing"].map(_OPACITY).to_numpy(float),
            "line": {"width": 2 if symbol.endswith("-open") else 0, "color": colour},
        },
        "customdata": _identities(points) if few else points[["fingerprint"]].to_numpy(str),
        **words,
    }


def _add_bars(figure: go.Figure, points: pd.DataFrame, x: tuple[str, float], y: tuple[str, float]) -> None:
    """Only the intervals of some points; `x` and `y` are a metric and its scale each."""
    _add(
        figure,
        points[x[0]] / x[1],
        points[y[0]] / y[1],
        "bars of the front",
        error_x=error_bars(points, *x, palette.GREY),
        error_y=error_bars(points, *y, palette.GREY),
        marker={"opacity": 0},
        showlegend=False,
        hoverinfo="skip",
    )


def _hover(row: Mapping[Any, Any], metrics: Sequence[str]) -> str:
    trials = ", ".join(str(number) for number in row["trials"])
    lines = [f"<b>{row['label']}</b>", *(f"{formats.title(metric)}: {cell_text(row, metric)}" for metric in metrics)]
    return "<br>".join([*lines, f"{row['standing']}; {row['seeds']} seeds, trials {trials}"])


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
            text=[_hover(row, (x,)) for row in points.to_dict("records")],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})


def _sizes(points: pd.DataFrame) -> dict[object, float]:
    """A marker's size in pixels by its window."""
    return {one: palette.window_size_px(None if pd.isna(one) else int(one)) for one in points["window"].unique()}


def _identities(points: pd.DataFrame) -> list[list[object]]:
    return [[one, *trials] for one, trials in zip(points["fingerprint"], points["trials"], strict=True)]


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


def _add_bound(
    figure: go.Figure, constraint: Constraint, x: str, y: str, x_scale: float, y_scale: float, colour: str, end: str
) -> None:
    line = {"color": colour, "width": 1.5, "dash": "dash"}
    sign = {"<=": "≤", ">=": "≥"}.get(constraint.operator, constraint.operator)
    text = f" {sign} {with_unit(constraint.metric, constraint.bound)}"
    if constraint.metric == x:
        figure.add_vline(
            x=constraint.bound / x_scale, line=line, annotation_text=text, annotation_position=f"{end} right"
        )
    elif constraint.metric == y:
        figure.add_hline(
            y=constraint.bound / y_scale, line=line, annotation_text=text, annotation_position=f"{end} left"
        )
