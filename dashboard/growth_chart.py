"""How a study's front grew, as a figure: pure."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard import formats, palette
from dashboard.charts import finished
from orchestrator.hypervolume import HypervolumePoint


def growth_figure(points: Sequence[HypervolumePoint]) -> go.Figure:
    """Hypervolume by finished trials; a step, because it only changes when a trial ends."""
    figure = go.Figure(
        go.Scatter(
            x=[point.finished for point in points],
            y=[point.volume for point in points],
            mode="lines+markers" if len(points) < 30 else "lines",
            line={"color": palette.BLUE, "width": 2, "shape": "hv"},
            text=[formats.moment(point.at) for point in points],
            hovertemplate="%{y:.4f} after %{x} trials<br>%{text}<extra></extra>",
        )
    )
    figure.update_xaxes(title="Finished trials")
    figure.update_yaxes(title="Hypervolume", rangemode="tozero")
    return finished(figure, height=260)
