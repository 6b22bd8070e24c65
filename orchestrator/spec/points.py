"""The points of a search space, walked in the file's order: the first parameter changes slowest."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from orchestrator.configuration import written_knobs
from orchestrator.spec.knobs import KNOBS
from orchestrator.spec.search import Parameter

if TYPE_CHECKING:
    from orchestrator.spec.study_spec import StudySpec

ENUMERABLE = 2_000
"""Points beyond which a space is sampled rather than enumerated."""
_EXTREME = 500
"""Extreme points that are tried; resolving one costs half a millisecond."""

Point = dict[str, Any]
Values = Callable[[str, Parameter], Sequence[Any]]


class TooManyPointsError(Exception):
    """A point has a parameter with infinitely many values, or there are more points than asked for."""


def enumerate_points(spec: "StudySpec") -> list[Point] | None:
    """Every point, or None when there are too many; several points may be one configuration."""
    try:
        return _at_most(ENUMERABLE, walk(spec, _every))
    except TooManyPointsError:
        return None


def extreme_points(spec: "StudySpec") -> list[Point]:
    """All choices and the ends of all ranges combined; a fixed random part of all values when there are too many."""
    try:
        return _at_most(_EXTREME, walk(spec, lambda _, parameter: parameter.ends()))
    except TooManyPointsError:
        random = Random(0)
        return [next(walk(spec, lambda _, parameter: [random.choice(_any(parameter))])) for _ in range(_EXTREME)]


def size_points(spec: "StudySpec") -> list[Point] | None:
    """All combinations of extreme sizes, loops and branches, whatever else is searched at its first value.

    What is known of a configuration before training is largest and smallest at one of these. None when there are too
    many.
    """
    deciding = {condition.knob for parameter in spec.search.values() for condition in parameter.conditions}

    def values(name: str, parameter: Parameter) -> Sequence[Any]:
        ends = parameter.ends()
        return ends if name in deciding or KNOBS[name].section != "train" else ends[:1]

    try:
        return _at_most(ENUMERABLE, walk(spec, values))
    except TooManyPointsError:
        return None


def walk(spec: "StudySpec", values: Values) -> Iterator[Point]:
    """Every combination of the values that each parameter gives, without parameters whose condition does not hold."""
    yield from _extend(spec, values, list(spec.search), {})


def _extend(spec: "StudySpec", values: Values, names: Sequence[str], params: Point) -> Iterator[Point]:
    if not names:
        yield params
        return
    name, rest = names[0], names[1:]
    parameter = spec.search[name]
    if parameter.conditions and not parameter.applies(written_knobs(spec, params)):
        yield from _extend(spec, values, rest, params)
        return
    for value in values(name, parameter):
        yield from _extend(spec, values, rest, {**params, name: value})


def _every(name: str, parameter: Parameter) -> Sequence[Any]:
    del name
    values = parameter.every()
    if values is None:
        raise TooManyPointsError
    return values


def _any(parameter: Parameter) -> Sequence[Any]:
    return parameter.every() or parameter.ends()


def _at_most(most: int, points: Iterator[Point]) -> list[Point]:
    found: list[Point] = []
    for point in points:
        if len(found) == most:
            raise TooManyPointsError
        found.append(point)
    return found
