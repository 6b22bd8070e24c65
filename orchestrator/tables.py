"""Tables for the terminal: studies, the front, a comparison."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.comparison import Comparison
from orchestrator.configurations import group
from orchestrator.formats import knob, unit, with_interval, with_unit
from orchestrator.latency_devices import mixed_devices
from orchestrator.records import Objective, StudyRecord, TrialRecord, TrialState


def params_text(params: Mapping[str, Any]) -> str:
    """`num_loops=2 window=16`."""
    return " ".join(f"{name}={knob(value)}" for name, value in params.items()) or "(nothing searched)"


def heading(metric: str) -> str:
    """A metric's column heading, with its unit, on lines of its own so that narrow terminals keep it whole."""
    suffix = unit(metric)
    name = metric.replace("/", "/\n", 1)
    return name if suffix in ("", "bytes") else f"{name}\n[dim]{suffix}[/]"


def studies_table(studies: Iterable[StudyRecord]) -> Table:
    """One row per study."""
    table = Table("study", "state", "configurations", "trials", "failed", "question", box=None, pad_edge=False)
    for study in studies:
        states = Counter(trial.state for trial in study.trials)
        finished = sum(count for state, count in states.items() if state.finished)
        known = len({trial.configuration for trial in study.trials})
        table.add_row(
            study.name,
            study.state.value,
            f"{known} of {study.budget}",
            f"{finished} finished",
            str(states[TrialState.FAIL]),
            Text(study.question),
        )
    return table


def front_table(study: StudyRecord, title: str = "front") -> Table:
    """The configurations that no other beats in every objective, means with 95 % intervals over seeds."""
    objectives = [objective.metric for objective in study.objectives]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("trials", *study.search):
        table.add_column(name, overflow="fold")
    for objective in study.objectives:
        table.add_column(
            f"{heading(objective.metric)}\n[dim]{objective.direction}[/]", justify="right", overflow="fold"
        )
    table.caption, table.caption_justify, table.caption_style = mixed_devices(study), "left", "yellow"
    front = [configuration for configuration in group(study) if configuration.on_front]
    first = study.objectives[0]
    front.sort(key=lambda one: one.metrics[first.metric].mean, reverse=first.direction == "maximize")
    for configuration in front:
        table.add_row(
            ",".join(str(trial.number) for trial in configuration.trials),
            *(Text(knob(configuration.params.get(name, "-"))) for name in study.search),
            *(with_interval(metric, configuration.metrics[metric]) for metric in objectives),
        )
    return table


def standing(study: StudyRecord) -> Iterator[Text]:
    """Lines that say how a study stands: state, counts, failures by reason."""
    known = {trial.configuration for trial in study.trials}
    states = Counter(trial.state.value for trial in study.trials)
    driver = f" (driver {study.driver})" if study.driver is not None else ""
    message = f", {study.message}" if study.message else ""
    yield Text.assemble((study.name, "bold"), f": {study.state.value}{driver}{message}")
    counts = ", ".join(f"{count} {state}" for state, count in states.items()) or "no trial yet"
    yield Text(f"{len(known)} of {study.budget} configurations; {counts}")
    retried = {trial.retries for trial in study.trials}
    failures = [(t.failure, t.number) for t in study.trials if t.failure is not None and t.number not in retried]
    for reason, count in Counter(failure["reason"] for failure, _ in failures).items():
        failure, number = next(each for each in failures if each[0]["reason"] == reason)
        yield Text(f"  {count} x {reason}, e.g. trial {number}: {failure['message']}")
    if failures:
        yield Text(f"  `plt retry {study.name} --failed` tries them again")


def verdict(trial: TrialRecord, objectives: Iterable[Objective]) -> str:
    """What came of a finished trial, in one line."""
    if trial.failure is not None:
        return f"failed, {trial.failure['reason']}: {trial.failure['message']}"
    if trial.stopped_at is not None:
        return f"stopped by the pruner at {trial.stopped_at:,} tokens"
    if trial.state is TrialState.PRUNED:
        broken = ", ".join(name for name, amount in trial.violations.items() if amount > 0)
        return f"infeasible before training: breaks {broken}"
    values = zip(objectives, trial.values or (), strict=False)
    return "done: " + ", ".join(
        f"{objective.metric} {with_unit(objective.metric, value)}" for objective, value in values
    )


def print_study(console: Console, study: StudyRecord) -> None:
    """State, counts, failures by reason, front."""
    for line in standing(study):
        console.print(line, soft_wrap=True)
    if any(configuration.on_front for configuration in group(study)):
        console.print(front_table(study))
    elif any(trial.state is TrialState.COMPLETE for trial in study.trials):
        console.print("no feasible configuration: every finished one breaks a constraint")


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Knobs that differ, then metrics with differences from the first trial."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in comparison.trials:
        table.add_column(name, justify="right")
    for name, values in comparison.differing_knobs.items():
        table.add_row(name, *(Text("-" if value is None else str(value)) for value in values))
    table.add_section()
    for metric, intervals in comparison.metrics.items():
        cells = ["-" if interval is None else with_interval(metric, interval) for interval in intervals]
        suffix = unit(metric)
        table.add_row(metric if suffix in ("", "bytes") else f"{metric} [dim]({suffix})[/]", *cells)
    console.print(table)
    if not comparison.differing_knobs and len(set(comparison.trials)) > 1:
        console.print("the trials have the same knobs; they can only differ in their seed")
