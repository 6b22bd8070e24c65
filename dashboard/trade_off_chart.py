"""The trade-off between two metrics as a figure: pure functions, no Streamlit.

Points carry the configuration's fingerprint first and then its trial numbers in `customdata`; positions in a trace
mean nothing, because they change as trials finish. The figure leaves `dragmode` alone: with a select mode Streamlit
would lose clicks. Beyond `FEW` points only those on the front have error bars, hovering tells means, and a point
carries a few words and the number of its first trial: arrays of numbers and of short text reach the browser without a
look at every single one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_SHORT_HOVER: dict[str, Any] = {"hovertemplate": "%{text}<br>%{y:.5g} against %{x:.5g}<extra></extra>"}
_DRAWN = ("front", "dominated", "infeasible", "outside")
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
    results = frame.loc[frame["standing"].isin(_DRAWN), columns]
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
    columns_of = _columns(known, x_axis.scale, y_axis.scale, x, y) | ({} if few else _short(known))
    named = set[str]()
    for num_loops, symbol, index in _alike(known):
        name = f"{num_loops} loop{'s' * (num_loops != 1)}"
        shown = {"type": kind, "name": name, "legendgroup": name, "showlegend": name not in named, "mode": "markers"}
        named.add(name)
        colour = palette.loop_colour(num_loops)
        points = {column: values[index] for column, values in columns_of.items()}
        marker = {"color": colour, "symbol": symbol, "size": points.pop("size"), "opacity": points.pop("opacity")}
        marker["line"] = {"width": 2 if symbol.endswith("-open") else 0, "color": colour}
        words = _full(known.iloc[index], x, y, x_axis.scale, y_axis.scale, colour) if few else _SHORT_HOVER
        figure.add_trace(shown | points | words | {"marker": marker})
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


def _alike(known: pd.DataFrame) -> Iterator[tuple[int, str, np.ndarray]]:
    """Positions of the points of one loop count and one symbol: plotly looks at every single one of many symbols.

    By loop count, then as the symbols first appear.
    """
    hollow = np.where(known["standing"] == "infeasible", "-open", "")
    symbols, names = pd.factorize(known["gate"].map(palette.GATE_SYMBOLS).to_numpy(object) + hollow.astype(object))
    loops = known["num_loops"].to_numpy(int)
    for num_loops in np.unique(loops):
        here = np.flatnonzero(loops == num_loops)
        for symbol in pd.unique(symbols[here]):
            yield int(num_loops), str(names[symbol]), here[symbols[here] == symbol]


def _columns(known: pd.DataFrame, x_scale: float, y_scale: float, x: str, y: str) -> dict[str, np.ndarray]:
    """What every point has, by plotly's names; `size` and `opacity` are its marker's."""
    return {
        "x": known[x].to_numpy(float) / x_scale,
        "y": known[y].to_numpy(float) / y_scale,
        "size": known["window"].map(_sizes(known)).to_numpy(float),
        "opacity": known["standing"].map(_OPACITY).to_numpy(float),
    }


def _short(known: pd.DataFrame) -> dict[str, np.ndarray]:
    """A few words and the first trial's number, where points are many."""
    labels = [text if len(text) <= _SHORT else text[:_SHORT] + "…" for text in known["label"]]
    return {"text": np.array(labels), "customdata": np.array([trials[0] for trials in known["trials"]])}


def _full(points: pd.DataFrame, x: str, y: str, x_scale: float, y_scale: float, colour: str) -> dict[str, Any]:
    """All words, intervals and identities, where points are few."""
    return {
        "text": [_hover(row, (y, x)) for row in points.to_dict("records")],
        "hovertemplate": "%{text}<extra></extra>",
        "error_x": error_bars(points, x, x_scale, colour),
        "error_y": error_bars(points, y, y_scale, colour),
        "customdata": _identities(points),
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


def picked(selection: Mapping[str, Any], owners: Callable[[], Mapping[int, str]]) -> tuple[str, ...]:
    """Fingerprints of the points that a person clicked or boxed, from Streamlit's selection state.

    `owners` gives the configuration of every trial, for points that carry the number of one.
    """
    found = [point.get("customdata") for point in selection["selection"]["points"]]
    firsts = [one[0] if isinstance(one, list) else one for one in found if one is not None and one != []]
    known = owners() if any(not isinstance(one, str) for one in firsts) else {}
    named = [one if isinstance(one, str) else known.get(int(one)) for one in firsts]
    return tuple(dict.fromkeys(one for one in named if one is not None))


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
