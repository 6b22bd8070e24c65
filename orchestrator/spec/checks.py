"""What only shows when the parts of a study file are seen together. All of it is found before anything starts."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.configuration import LOOP_KNOBS, Configuration, resolve
from orchestrator.constraints import parse_constraint
from orchestrator.spec.knobs import closest
from orchestrator.spec.metrics import ALL, DECODING, produced
from orchestrator.spec.points import enumerate_points, extreme_points
from orchestrator.spec.problem import Problem

if TYPE_CHECKING:
    from orchestrator.spec.study_spec import StudySpec


def check(spec: "StudySpec") -> list[Problem]:
    """Everything that is wrong with a spec whose parts are each well formed."""
    problems = [*_conditions(spec), *_metrics(spec)]
    if problems:
        return problems
    configurations: list[Configuration] = []
    found: dict[str, Problem] = {}
    for point in enumerate_points(spec) or extreme_points(spec):
        try:
            configurations.append(resolve(spec, point))
        except ValueError as error:
            found.setdefault(str(error), _at_point(spec, point, str(error)))
    return [*found.values()] or [*_constraints(spec, configurations), *_grid(spec)]


def _conditions(spec: "StudySpec") -> Iterator[Problem]:
    """A condition can only be judged by what is decided before it."""
    order = list(spec.search)
    for position, (name, parameter) in enumerate(spec.search.items()):
        for condition in parameter.conditions:
            needed = {condition.knob} | ({"variant"} if condition.knob in LOOP_KNOBS else set())
            for late in sorted(needed & set(order[position:])):
                yield Problem(
                    ("search", name, "when", condition.knob),
                    f"the condition of {name} depends on {late}, which must be searched before it; move {late} up",
                )


def _metrics(spec: "StudySpec") -> Iterator[Problem]:
    corpora = spec.search["corpus"].ends() if "corpus" in spec.search else [spec.data.corpus or "stdlib"]
    grid = None if spec.benchmark is None else spec.benchmark.config()
    known = produced(corpora, grid)
    seen: set[str] = set()
    for index, objective in enumerate(spec.objectives):
        if objective.metric not in known:
            yield Problem(("objectives", index, "metric"), _unknown_metric(objective.metric, known))
        elif objective.metric in seen:
            yield Problem(("objectives", index, "metric"), f"{objective.metric} is an objective twice; leave one out")
        seen.add(objective.metric)
    for index, text in enumerate(spec.constraints):
        try:
            metric = parse_constraint(text).metric
        except ValueError as error:
            yield Problem(("constraints", index), f"constraint {text!r} {error}")
            continue
        if metric not in known:
            yield Problem(("constraints", index), _unknown_metric(metric, known))


def _unknown_metric(metric: str, known: list[str]) -> str:
    if metric in DECODING:
        return f"nothing measures {metric!r}: the study has no benchmark; add a benchmark section ({{}} will do)"
    if metric in ALL:
        return f"nothing produces {metric!r} with this data; choose from {', '.join(known)}"
    return f"nothing produces a metric {metric!r}; known are {', '.join(known)}{closest(metric, known)}"


def _at_point(spec: "StudySpec", point: Mapping[str, Any], message: str) -> Problem:
    """The error of a point, at the knob that its first word names."""
    where = f" (at {', '.join(f'{name}={value}' for name, value in point.items())})" if point else ""
    return Problem(spec.place_of(message.split()[0]), f"{message}{where}")


def _constraints(spec: "StudySpec", configurations: list[Configuration]) -> Iterator[Problem]:
    """Some metrics are known beforehand, so a bound on one that no point meets is an error and not a long wait."""
    known = [configuration.metrics_beforehand() for configuration in configurations]
    for index, text in enumerate(spec.constraints):
        constraint = parse_constraint(text)
        values = [metrics[constraint.metric] for metrics in known if constraint.metric in metrics]
        if values and all(constraint.amount(value) > 0 for value in values):
            yield Problem(
                ("constraints", index),
                f"no point meets {text!r}: {constraint.metric} lies from {min(values):,} to {max(values):,}",
            )


def _grid(spec: "StudySpec") -> Iterator[Problem]:
    if spec.sampler.name == "grid" and enumerate_points(spec) is None:
        yield Problem(
            ("sampler", "name"),
            "sampler.name is 'grid', but the search space is continuous or too large to list; "
            "give every range whole numbers or a step, or use tpe, nsga2 or random",
        )
