"""The charts of a report, from its material."""

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from dashboard import formats, palette
from dashboard.report import svg
from dashboard.report.material import Material
from orchestrator.configurations import ConfigurationRecord
from orchestrator.formats import with_interval, with_unit
from orchestrator.loop_table import by_layer_and_head
from orchestrator.membership import Membership
from orchestrator.recommendation.candidates import loops_of
from orchestrator.recommendation.loop_signs import loop_rows
from orchestrator.statistics import Interval

_OPACITY: Mapping[Membership, float] = {
    Membership.FRONT: 1.0,
    Membership.UNDECIDED: 0.75,
    Membership.DOMINATED: 0.3,
}
DIAGNOSTICS: Mapping[str, tuple[str, str]] = {
    "lens_loss": ("Loss if this were the last loop (nats)", "falls while loops help"),
    "step_size": ("Step size", "how far a loop moves the state"),
    "effective_rank": ("Effective rank", "directions in use; falling is LoopCoder-v2's sign to stop"),
    "offset_over_step": ("CLP offset over step size", "what the shift costs against what the loop does"),
    "attention_entropy": ("Attention entropy (nats)", "how widely heads look"),
    "attention_kl": ("Change of attention (nats)", "how much routing changes from the loop before"),
    "head_cosine": ("Likeness of heads (cosine)", "1 when all heads say the same"),
    "global_share": ("Full context's share of the gate", "the rest goes to the sliding window"),
}

_SPREAD = 0.5
"""Of the room between two loop counts, what the configurations of one are spread over."""
_INTERVALS = "Bars are 95 % intervals over seeds; a point without one has one seed."


@dataclass(frozen=True)
class Plot:
    """A chart with what is said below it."""

    name: str
    caption: str
    picture: Element


def plots(material: Material) -> list[Plot]:
    """Every chart that the study has data for, the most telling first."""
    found = [_by_loops(material), *_trade_offs(material)] if material.found.best else []
    return [*found, *_diagnostics(material), *_gate_map(material)]


def _by_loops(material: Material) -> Plot:
    objective = material.found.objective
    assert objective is not None
    counts = sorted(material.found.best)
    marks = []
    for loops in counts:
        able = [one for one in _comparable(material, objective.metric) if loops_of(one) == loops]
        for position, one in enumerate(able):
            aside = _SPREAD * ((position + 0.5) / len(able) - 0.5)
            best = one is material.found.best[loops]
            marks.append(_mark(material, one, loops + (0.0 if best else aside), objective.metric, best=best))
    line = [(float(loops), material.found.best[loops].metrics[objective.metric].mean) for loops in counts]
    title = formats.title(objective.metric)
    picture = svg.chart(
        svg.Axis(title="loops R", labels=[(float(loops), str(loops)) for loops in counts]),
        svg.Axis(title=title),
        f"{title} by loop count, one point per configuration, a line through the ones to take.",
        marks=marks,
        lines=[svg.Line(points=line, colour=palette.GREY, dashed=True)],
    )
    way = "larger" if objective.direction == "maximize" else "smaller"
    return Plot("by-loops", f"{title} by loop count ({way} is better). {_INTERVALS}", picture)


def _comparable(material: Material, metric: str) -> list[ConfigurationRecord]:
    return [one for one in material.configurations if one.complete and one.feasible and metric in one.metrics]


def _trade_offs(material: Material) -> list[Plot]:
    objective = material.found.objective
    assert objective is not None
    plots = []
    for cost in ("decode/latency_ratio", "kv/bytes_per_sequence", "train/flops"):
        able = [one for one in _comparable(material, objective.metric) if cost in one.metrics]
        if len({one.metrics[cost].mean for one in able}) < 2:
            continue
        axis = formats.axis(cost, [one.metrics[cost].mean for one in able])
        marks = [_mark(material, one, one.metrics[cost].mean / axis.scale, objective.metric) for one in able]
        title = formats.title(objective.metric)
        picture = svg.chart(
            svg.Axis(title=axis.title),
            svg.Axis(title=title),
            f"{title} against {formats.title(cost)}, one point per configuration, coloured by loop count.",
            marks=marks,
        )
        caption = (
            f"{title} against {formats.title(cost).lower()}. Full: on the front; faded: dominated; ring: undecided."
        )
        plots.append(Plot(f"against-{cost.replace('/', '-')}", caption, picture))
    return plots


def _mark(material: Material, one: ConfigurationRecord, x: float, metric: str, *, best: bool = False) -> svg.Mark:
    interval = one.metrics[metric]
    standing = material.standings.get(one.fingerprint)
    membership = Membership.DOMINATED if standing is None else standing.membership
    return svg.Mark(
        x=x,
        y=interval.mean,
        y_low=interval.low,
        y_high=interval.high,
        colour=palette.loop_colour(loops_of(one)),
        symbol=palette.GATE_SYMBOLS[formats.gate_kind(one.knobs)],
        size=6.5 if best else 4.5,
        opacity=1.0 if best else _OPACITY[membership],
        hollow=membership is Membership.UNDECIDED and not best,
        title=f"{formats.configuration_label(one.params)}: {with_interval(metric, interval)}, {membership.value}",
    )


def _diagnostics(material: Material) -> list[Plot]:
    return [plot for name in DIAGNOSTICS if (plot := _diagnostic(material, name)) is not None]


def _diagnostic(material: Material, name: str) -> Plot | None:
    """One measure by loop, a line per loop count's best configuration."""
    marks, lines, most = [], [], 1
    for loops, one in material.found.best.items():
        points = [(row.loop, getattr(row, name)) for row in loop_rows(one) if getattr(row, name) is not None]
        if not points:
            continue
        most, colour = max(most, loops), palette.loop_colour(loops)
        marks += [_diagnosed(one, loops, loop, name, colour) for loop, _ in points]
        lines.append(svg.Line(points=[(float(loop), value) for loop, value in points], colour=colour))
    if not marks:
        return None
    title, meaning = DIAGNOSTICS[name]
    places = [(float(loop), str(loop)) for loop in range(1, most + 1)]
    alt = f"{title} by loop, a line for the best configuration of each loop count."
    picture = svg.chart(svg.Axis(title="loop r", labels=places), svg.Axis(title=title), alt, marks=marks, lines=lines)
    return Plot(f"loops-{name.replace('_', '-')}", f"{title}: {meaning}.", picture)


def _diagnosed(one: ConfigurationRecord, loops: int, loop: int, name: str, colour: str) -> svg.Mark:
    interval: Interval = one.metrics[f"loops/{loop}/{name}"]
    return svg.Mark(
        x=float(loop),
        y=interval.mean,
        y_low=interval.low,
        y_high=interval.high,
        colour=colour,
        size=4.0,
        title=f"R={loops}, loop {loop}: {with_unit(name, interval.mean)}",
    )


def _gate_map(material: Material) -> list[Plot]:
    """The gate of the recommended configuration's last loop, of its first seed."""
    one = material.found.configuration
    tables = [] if one is None else material.tables.get(one.fingerprint, [])
    if one is None or not tables:
        return []
    rows = by_layer_and_head(tables[0], "global_share", loops_of(one))
    if not rows:
        return []
    alt = f"The full context's share in loop {loops_of(one)}, by layer and head."
    picture = svg.cells(rows, "layer", "head", alt, palette.BLUE)
    return [Plot("gate-map", f"{alt} 1 is all full context, 0 all sliding window; one seed.", picture)]
