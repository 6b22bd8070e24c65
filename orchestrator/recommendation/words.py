"""A recommendation for people: plain text for the terminal, Markdown for an issue or a lab log."""

import math
from collections.abc import Iterator, Sequence

from orchestrator.configurations import ConfigurationRecord
from orchestrator.contrasts import MOST_SEEDS
from orchestrator.formats import byte_count, knob, unit, with_interval, with_unit
from orchestrator.paired import values_by_seed
from orchestrator.recommendation.answer import Bounds, Recommendation, Step
from orchestrator.recommendation.loop_signs import signs

Row = tuple[str, ...]


def text(found: Recommendation) -> str:
    """Answer, evidence and certainty, in lines."""
    parts = [headline(found), *how_sure(found)]
    if found.best:
        parts += ["", *_aligned(cost_rows(found))]
    if found.steps:
        parts += ["", *_aligned(step_rows(found))]
    parts += ["", *notes(found)] if list(notes(found)) else []
    return "\n".join(parts)


def markdown(found: Recommendation) -> str:
    """The same with Markdown tables."""
    parts = [f"**{headline(found)}**", " ".join(how_sure(found))]
    if found.best:
        parts += [_table(rows) for rows in (cost_rows(found), step_rows(found)) if len(rows) > 1]
    parts += ["\n".join(f"- {note}" for note in notes(found))] if list(notes(found)) else []
    return "\n\n".join(part for part in parts if part)


def headline(found: Recommendation) -> str:
    """The answer in one sentence."""
    if found.configuration is None:
        return f"{found.study}: nothing to recommend"
    return f"{found.study}: take {named(found.configuration)}"


def named(one: ConfigurationRecord) -> str:
    """A configuration in a few words: the loop count, then the other searched knobs."""
    loops = f"R={one.knobs.get('num_loops') or 1}"
    rest = [f"{name} {knob(value)}" for name, value in one.params.items() if name != "num_loops"]
    return ", ".join([loops, *rest])


def how_sure(found: Recommendation) -> Iterator[str]:
    """Sentences on certainty."""
    if found.loops is None or (len(found.best) < 2 and not found.unknown):
        return
    level = f"{100 * found.level:g} %"
    if found.sure:
        yield f"Sure at {level}: R={found.loops} is the smallest loop count from which no larger one pays"
        yield f"({_percent(found.confidence)} confidence, the choice among configurations allowed for)."
        return
    if found.unknown:
        which = " and ".join(f"R={one.knobs.get('num_loops') or 1}" for one in found.unknown)
        yield f"Undecided at {level}: nothing with {which} was trained to the end. A further seed of"
        yield f"{', or '.join(named(one) for one in found.unknown)} would tell: it runs to the end."
    else:
        yield f"Undecided at {level} ({_percent(found.confidence)} confidence)."
    if not found.unsettled:
        return
    counts = sorted({one.knobs.get("num_loops") or 1 for one in found.unsettled})
    which = " and ".join(f"R={count}" for count in counts)
    how_many = f"{len(found.unsettled)} configuration{'s' * (len(found.unsettled) != 1)} of {which}"
    if found.noise is None:
        yield f"With one seed nothing is known of the noise: run further seeds of {how_many}."
    elif found.further_seeds is None:
        yield f"More than {MOST_SEEDS} further seeds of {how_many} would be needed: the difference lies too close to"
        yield "the least worthwhile gain. Take the smaller loop count, or name another gain with --worth."
    else:
        seeds = f"{found.further_seeds} more seed{'s' * (found.further_seeds != 1)}"
        yield f"{seeds} of {how_many} would settle it at {level}, if they come out like those so far."


def cost_rows(found: Recommendation) -> list[Row]:
    """One row per loop count: its best configuration, what it reaches and what it costs."""
    assert found.objective is not None
    metric = found.objective.metric
    rows: list[Row] = [("loops", "configuration", "seeds", metric, "ms/token", "latency", "KV/sequence", "training")]
    base = next(iter(found.costs.values())).train_flops if found.costs else None
    for loops, one in found.best.items():
        costs = found.costs[loops]
        mark = " *" if loops == found.loops else ""
        rows.append(
            (
                f"R={loops}{mark}",
                named(one).partition(", ")[2] or "-",
                str(len(values_by_seed(one, metric))),
                with_interval(metric, one.metrics[metric]),
                "-" if costs.ms_per_token is None else f"{costs.ms_per_token:.2f}",
                "-" if costs.latency_ratio is None else f"{costs.latency_ratio:.2f} x",
                "-" if costs.kv_bytes is None else byte_count(costs.kv_bytes),
                "-" if costs.train_flops is None or not base else f"{costs.train_flops / base:.2f} x",
            )
        )
    return rows


def step_rows(found: Recommendation) -> list[Row]:
    """One row per step from a loop count to a larger one: marginal gain, marginal cost, verdict."""
    rows: list[Row] = [("step", "gain", "at least", "at most", "pays above", "latency", "KV", "training", "verdict")]
    return rows + [_step_row(found, step) for step in found.steps]


def step_note(found: Recommendation) -> str:
    """What is compared in a step, when what to take is not the best but costs less."""
    assert found.objective is not None
    worth = with_unit(found.objective.metric, found.worth)
    return (
        "gains are those of the best of a loop count over the best of another; costs are of what to take there, the "
        f"cheapest that is worse than the best by no more than {worth}"
    )


def _step_row(found: Recommendation, step: Step) -> Row:
    assert found.objective is not None
    metric, before, after = found.objective.metric, found.costs[step.from_loops], found.costs[step.to_loops]
    return (
        f"R={step.from_loops} to {step.to_loops}",
        signed(metric, step.gain.estimate),
        _bound(metric, step.gain.low),
        _bound(metric, step.gain.high),
        with_unit(metric, step.worth),
        _change(before.latency, after.latency),
        _change(before.kv_bytes, after.kv_bytes),
        _change(before.train_flops, after.train_flops),
        step.verdict.value,
    )


def notes(found: Recommendation) -> Iterator[str]:
    """What else a reader should know, in sentences."""
    if found.steps:
        yield step_note(found)
    for one in found.as_good[:3]:
        yield f"as good as far as is known, or worse by less than the least worthwhile gain: {named(one)}"
    if len(found.as_good) > 3:
        yield f"and {len(found.as_good) - 3} more of R={found.loops}"
    yield from signs(found)
    for reason, count in found.left_out.items():
        yield f"left out, {reason}: {count} configuration{'s' * (count != 1)}"
    yield from found.caveats
    if found.noise is not None and found.objective is not None:
        how = "paired by seed" if found.paired else "not paired"
        noise = with_unit(found.objective.metric, found.noise)
        yield f"noise of one seed {noise}, pooled over configurations, {how}; gains are positive where better"


def gain_text(metric: str, gain: Bounds) -> str:
    """A gain with its bounds: `+0.012 (0.004 to 0.020)`."""
    return f"{signed(metric, gain.estimate)} ({_bound(metric, gain.low)} to {_bound(metric, gain.high)})"


def signed(metric: str, value: float) -> str:
    """A difference with its sign and unit."""
    return ("+" if value > 0 else "") + with_unit(metric, value)


def _bound(metric: str, value: float) -> str:
    if math.isinf(value):
        return "unknown"
    return signed(metric, value) if unit(metric) == "bytes" else signed(metric, value).split(" ")[0]


def _change(before: float | None, after: float | None) -> str:
    return "-" if not before or after is None else f"{100 * (after / before - 1):+.1f} %"


def _percent(confidence: float) -> str:
    shown = math.floor(1000 * confidence) / 10
    return f"at least {min(shown, 99.9):g} %" if shown >= 50 else "less than 50 %"


def _aligned(rows: Sequence[Row]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _table(rows: Sequence[Row]) -> str:
    lines = [rows[0], tuple("---" for _ in rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
