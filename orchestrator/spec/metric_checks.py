"""Whether something measures what the objectives and constraints of a study ask for, and whether it can be met."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

from orchestrator.constraints import Constraint, parse_constraint
from orchestrator.spec.knobs import closest
from orchestrator.spec.metrics import DECODING, exists, possible, produced
from orchestrator.spec.problem import Problem
from orchestrator.spec.written import shown
from workers.config import DataConfig
from workers.config.task_shapes import TASKS

if TYPE_CHECKING:
    from orchestrator.configuration import Configuration
    from orchestrator.spec.study_spec import StudySpec


_ROOM: dict[str, Any] = {
    "seq_len": 10**7,
    "eval_sequences": 10**6,
    "statements": 48,
    "assignments": 1000,
    "nodes": 1000,
}
"""Lengths with room for every depth."""


def metric_problems(spec: "StudySpec") -> Iterator[Problem]:
    """Metrics that nothing produces, constraints that cannot be read, and bounds that no value can meet."""
    data = _data(spec)
    if not data:
        return
    known = produced(data, None if spec.benchmark is None else spec.benchmark.config())
    yield from _objectives(spec, known)
    constraints: list[Constraint] = []
    for index, text in enumerate(spec.constraints):
        try:
            constraint = parse_constraint(text)
        except ValueError as error:
            yield Problem(("constraints", index), f"constraint {shown(text)} {error}")
            continue
        message = _misfit(constraint, text, known, [one for one in constraints if one.metric == constraint.metric])
        if message:
            yield Problem(("constraints", index), message)
        constraints.append(constraint)


def unmet_constraints(
    spec: "StudySpec", configurations: Sequence["Configuration"], *, all_points: bool
) -> Iterator[Problem]:
    """Constraints on what is known beforehand that no point meets: an error, and not a long wait.

    `all_points` says that there are no other points than these; only then can no point meet all constraints together.
    """
    constraints = [parse_constraint(text) for text in spec.constraints]
    known = [configuration.metrics_beforehand() for configuration in configurations] if constraints else []
    early = {name for metrics in known for name in metrics}
    judged = [(index, one) for index, one in enumerate(constraints) if one.metric in early]
    for index, constraint in judged:
        values = [metrics[constraint.metric] for metrics in known]
        if all(constraint.amount(value) > 0 for value in values):
            low, high = min(values), max(values)
            lies = f"is {low:,}" if low == high else f"lies from {low:,} to {high:,}"
            message = f"no point meets {spec.constraints[index]!r}: {constraint.metric} {lies}"
            yield Problem(("constraints", index), f"{message}; move the bound, or search other sizes")
            return
    met = (all(constraint.amount(metrics[constraint.metric]) <= 0 for _, constraint in judged) for metrics in known)
    if all_points and judged and not any(met):
        texts = " and ".join(repr(spec.constraints[index]) for index, _ in judged)
        yield Problem(("constraints", judged[-1][0]), f"no point meets {texts} together; move one of the bounds")


def _data(spec: "StudySpec") -> list[DataConfig]:
    """Every data set, as far as its metrics go, that the study may train on: depths, but no lengths, matter."""
    knobs = ["corpus", "extrapolate", "code_sets", *(shape.depth for shape in TASKS.values())]
    values = {name: spec.search[name].ends() for name in knobs if name in spec.search}
    fixed = {name: value for name, value in spec.data if name in knobs and name not in values and value is not None}
    found = []
    for point in product(*values.values()):
        with suppress(ValueError):  # depths that no length has room for are refused with the points
            found.append(DataConfig(**{**_ROOM, **fixed, **dict(zip(values, point, strict=True))}))
    return found


def _objectives(spec: "StudySpec", known: Sequence[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, objective in enumerate(spec.objectives):
        if objective.metric not in known:
            yield Problem(("objectives", index, "metric"), _unknown_metric(objective.metric, known))
        elif objective.metric in seen:
            yield Problem(("objectives", index, "metric"), f"{objective.metric} is an objective twice; leave one out")
        seen.add(objective.metric)


def _misfit(constraint: Constraint, text: str, known: Sequence[str], others: Iterable[Constraint]) -> str | None:
    """Why a constraint beside others on the same metric makes no sense, if it does not."""
    if constraint.metric not in known:
        return _unknown_metric(constraint.metric, known)
    low, high, words = possible(constraint.metric)
    if constraint.amount(low) > 0 and constraint.amount(high) > 0:
        return f"no value meets {text!r}: {constraint.metric} is always {words}"
    for other in others:
        if other == constraint:
            return f"constraint {text!r} is there twice; leave one out"
        middle = (other.bound + constraint.bound) / 2
        if all(max(constraint.amount(value), other.amount(value)) > 0 for value in (low, middle, high)):
            return (
                f"no value meets both {text!r} and '{other.metric} {other.operator} {other.bound:g}'; "
                "leave one out, or move a bound"
            )
    return None


def _unknown_metric(metric: str, known: Sequence[str]) -> str:
    if metric in DECODING:
        return f"nothing measures {metric!r}: the study has no benchmark; add a benchmark section ({{}} will do)"
    if exists(metric):
        return f"nothing produces {metric!r} with this data; choose from {', '.join(known)}"
    return f"nothing produces a metric {shown(metric)}; known are {', '.join(known)}{closest(metric, known)}"
