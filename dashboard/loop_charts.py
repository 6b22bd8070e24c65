"""What each loop does, gains and costs, as tables and figures: pure.

Loop diagnostics are the metrics `loops/R/NAME` of a trial, means over its layers, heads and probe sequences; whatever
names there are is shown.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard import formats, frames, palette
from dashboard.charts import error_bars, finished
from orchestrator.configurations import ConfigurationRecord
from orchestrator.loop_table import by_layer_and_head
from workers.protocol import LoopValue

_FEW_CELLS = 32
"""Of a map, up to which its numbers are written into it."""
_LOOP = re.compile(r"loops/(\d+)/(.+)")
_MEANINGS: Mapping[str, tuple[str, str]] = {
    "step_size": ("Step size", "How far the loop moves the hidden state."),
    "update_cosine": ("Update cosine", "Cosine with the loop before's update; negative: the two undo each other."),
    "effective_rank": ("Effective rank", "How many directions of the hidden state are in use."),
    "fixed_point_gap": ("Fixed-point gap", "What one more loop would change."),
    "offset": ("CLP offset", "What cross-loop parallelism's shift by one token swaps in."),
    "offset_over_step": ("CLP offset over step", "The shift's offset relative to what the loop itself does."),
    "attention_entropy": ("Attention entropy", "How widely the loop attends, in nats."),
    "attention_kl": ("Attention change", "Divergence of the loop's attention from the loop before's, in nats."),
    "head_rank": ("Head rank", "How many heads say something of their own."),
    "head_cosine": ("Head cosine", "How alike the heads' outputs are."),
    "global_share": ("Global share", "What the full context counts beside the window: the gate's mean."),
    "lens_loss": ("Logit-lens loss", "Loss if the model answered after this loop, in nats."),
    "true_rank": ("Rank of the truth", "Rank of the true token after this loop; 1 is first."),
    "lens_entropy": ("Logit-lens entropy", "How undecided the model is after this loop, in nats."),
    "lens_kl": ("Prediction change", "How much the loop changes the prediction, in nats."),
    "peak_share": ("Peak share", "Share of tokens whose prediction changes most in this loop."),
}


def diagnostics(configurations: Sequence[ConfigurationRecord]) -> list[str]:
    """Names of the diagnostics that some configuration has, those with a meaning here first."""
    found = {match[2] for one in configurations for name in one.metrics if (match := _LOOP.fullmatch(name))}
    return _known_first(found)


def diagnostic_title(name: str) -> str:
    """A diagnostic's name for people."""
    return _MEANINGS.get(name, (name, ""))[0]


def diagnostic_help(name: str) -> str:
    """What it means, in one sentence."""
    return _MEANINGS.get(name, ("", ""))[1]


def by_loop(one: ConfigurationRecord, name: str) -> pd.DataFrame:
    """One row per loop: `loop`, `value`, `value low`, `value high`."""
    rows = []
    for metric, interval in one.metrics.items():
        match = _LOOP.fullmatch(metric)
        if match is not None and match[2] == name:
            rows.append((int(match[1]), interval.mean, interval.low, interval.high))
    return pd.DataFrame(sorted(rows), columns=["loop", "value", "value low", "value high"])


def diagnostic_figure(configurations: Mapping[str, ConfigurationRecord], name: str) -> go.Figure:
    """One diagnostic by loop, a line per configuration, with intervals over seeds."""
    figure = go.Figure()
    for index, (label, one) in enumerate(configurations.items()):
        rows = by_loop(one, name)
        if rows.empty:
            continue
        colour = palette.series_colour(index)
        figure.add_trace(
            go.Scatter(
                x=rows["loop"],
                y=rows["value"],
                error_y=error_bars(rows, "value", 1.0, colour),
                name=label,
                mode="lines+markers",
                line={"color": colour, "width": 2},
                marker={"size": 7, "symbol": palette.series_symbol(index)},
            )
        )
    figure.update_xaxes(title="Loop", dtick=1)
    figure.update_yaxes(title=diagnostic_title(name))
    return finished(figure, height=260)


def by_head(tables: Sequence[Sequence[LoopValue]]) -> list[str]:
    """Names of the diagnostics that are known by layer and head, the gate's share first."""
    found = {value.name for table in tables for value in table if value.head is not None}
    return sorted(_known_first(found), key=lambda name: name != "global_share")


def _known_first(names: set[str]) -> list[str]:
    return [name for name in _MEANINGS if name in names] + sorted(names.difference(_MEANINGS))


def head_maps(tables: Sequence[Sequence[LoopValue]], name: str) -> dict[int, np.ndarray]:
    """A diagnostic of every loop that has it, layers x heads, averaged over a configuration's trials."""
    loops = sorted({value.loop for table in tables for value in table if value.name == name})
    maps = {loop: [by_layer_and_head(table, name, loop) for table in tables] for loop in loops}
    return {loop: np.mean([one for one in found if one], axis=0) for loop, found in maps.items() if any(found)}


def heads_figure(maps: Mapping[int, np.ndarray], name: str) -> go.Figure:
    """The maps of one configuration beside each other, in one scale: 0 to 1 for a share."""
    figure = make_subplots(
        cols=len(maps), shared_yaxes=True, subplot_titles=[f"Loop {loop}" for loop in maps], horizontal_spacing=0.04
    )
    scale = {"cmin": 0, "cmax": 1} if name.endswith("_share") else {}
    for column, values in enumerate(maps.values(), start=1):
        cells = go.Heatmap(
            z=values,
            x=[str(head) for head in range(values.shape[1])],
            y=[str(layer) for layer in range(values.shape[0])],
            coloraxis="coloraxis",
            texttemplate="%{z:.3g}" if values.size <= _FEW_CELLS else None,
            hovertemplate="layer %{y}, head %{x}: %{z:.4g}<extra></extra>",
            xgap=2,
            ygap=2,
        )
        figure.add_trace(cells, row=1, col=column)
    figure.update_xaxes(title="Head", type="category")
    figure.update_yaxes(type="category", autorange="reversed")
    figure.update_yaxes(title="Layer", col=1)
    figure.update_layout(coloraxis={"colorscale": "Cividis", "colorbar": {"thickness": 12}, **scale})
    return finished(figure, height=max(240, 130 + 24 * max(len(values) for values in maps.values())))


def gains_frame(frame: pd.DataFrame, metric: str, costs: Sequence[str], direction: frames.Direction) -> pd.DataFrame:
    """The best feasible configuration of every loop count: its metric and costs, and the gain over one loop fewer."""
    able = frames.best_first(frame, metric, direction)
    best = able.groupby("num_loops", sort=True).head(1).sort_values("num_loops", ignore_index=True)
    columns = [column for name in (metric, *costs) for column in (name, f"{name} low", f"{name} high")]
    rows = best[["num_loops", "label", "fingerprint", "seeds", *dict.fromkeys(c for c in columns if c in best)]].copy()
    change = rows[metric].diff()
    rows["gain"] = -change if direction == "minimize" else change
    for cost in costs:
        if cost in rows:
            rows[f"{cost} more"] = rows[cost].diff()
    return rows


def gains_figure(rows: pd.DataFrame, metric: str) -> go.Figure:
    """The metric of the best configuration by loop count, with intervals over seeds."""
    axis = formats.axis(metric, rows[metric])
    figure = go.Figure(
        go.Scatter(
            x=rows["num_loops"],
            y=rows[metric] / axis.scale,
            error_y=error_bars(rows, metric, axis.scale, palette.GREY),
            mode="lines+markers",
            line={"color": palette.GREY, "dash": "dot"},
            marker={"size": 12, "color": [palette.loop_colour(int(loops)) for loops in rows["num_loops"]]},
            text=rows["label"],
            hovertemplate="%{text}<br>%{y:.5g}<extra></extra>",
        )
    )
    figure.update_xaxes(title="Loops (R)", dtick=1)
    figure.update_yaxes(title=axis.title)
    return finished(figure, height=300)
