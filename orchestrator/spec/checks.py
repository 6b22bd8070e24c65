"""What only shows when the parts of a study file are seen together. All of it is found before anything starts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.configuration import LOOP_KNOBS, Configuration, resolve
from orchestrator.spec.metric_checks import metric_problems, unmet_constraints
from orchestrator.spec.points import Point, enumerate_points, extreme_points, size_points
from orchestrator.spec.problem import Path, Problem
from orchestrator.spec.pruner_checks import pruner_problems
from orchestrator.spec.resource_checks import gang_problems, resource_problems
from orchestrator.spec.size_checks import size_problems
from orchestrator.spec.written import shown

if TYPE_CHECKING:
    from orchestrator.spec.study_spec import StudySpec

_BENCHMARK_MODEL = "benchmark.model."


def check(spec: "StudySpec") -> list[Problem]:
    """Everything that is wrong with a spec whose parts are each well formed."""
    problems = [*_one_vocab(spec), *_conditions(spec), *metric_problems(spec), *resource_problems(spec)]
    if problems:
        return problems
    listed = enumerate_points(spec)
    configurations, problems = _resolved(spec, listed or extreme_points(spec))
    return problems or [
        *unmet_constraints(spec, configurations if listed else _sized(spec), all_points=listed is not None),
        *pruner_problems(spec, configurations),
        *(_continuous_grid(spec) if listed is None else ()),
    ]


def _one_vocab(spec: "StudySpec") -> Iterator[Problem]:
    if spec.model.vocab is not None and spec.data.vocab is not None:
        yield Problem(("model", "vocab"), "vocab stands under model and under data; leave one out")


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


def _resolved(spec: "StudySpec", points: Sequence[Point]) -> tuple[list[Configuration], list[Problem]]:
    """The configurations at these points, and one problem per place where points cannot be."""
    configurations: list[Configuration] = []
    found: dict[Path, tuple[str, Mapping[str, Any]]] = {}
    times: Counter[Path] = Counter()
    for point in points:
        try:
            configuration = resolve(spec, point)
            misfits = [*size_problems(spec, configuration), *gang_problems(spec, configuration)]
            configurations.append(configuration)
        except ValueError as error:
            misfits = [(_place(spec, str(error)), str(error))]
        for place, message in misfits:
            found.setdefault(place, (message, point))
            times[place] += 1
    problems = [
        Problem(place, message + _at(point, times[place], len(points))) for place, (message, point) in found.items()
    ]
    return configurations, problems


def _sized(spec: "StudySpec") -> list[Configuration]:
    """The configurations at extreme sizes; none when there are too many to judge by them."""
    configurations, _ = _resolved(spec, size_points(spec) or [])
    return configurations


def _place(spec: "StudySpec", message: str) -> Path:
    """Where the file says what the knob is that the first word of a message names."""
    knob = message.split()[0]
    if knob.startswith(_BENCHMARK_MODEL):
        return ("benchmark", "model", knob.removeprefix(_BENCHMARK_MODEL))
    return spec.place_of(knob)


def _at(point: Mapping[str, Any], times: int, tried: int) -> str:
    """The point, and how many others are the same."""
    if not point:
        return ""
    others = f", and {times - 1:,} more of {tried:,} points" if times > 1 else ""
    return f" (at {', '.join(f'{name}={shown(value)}' for name, value in point.items())}{others})"


def _continuous_grid(spec: "StudySpec") -> Iterator[Problem]:
    if spec.sampler.name == "grid":
        endless = [name for name, parameter in spec.search.items() if parameter.every() is None]
        why = f"{' and '.join(endless)} cannot be listed" if endless else "there are too many points to list"
        yield Problem(
            ("sampler", "name"),
            f"sampler.name is 'grid', but {why}; give every range whole numbers or a step and fewer values, "
            "or use tpe, nsga2, gp or random",
        )
