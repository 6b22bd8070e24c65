"""The search space as a study file writes it: per knob either choices or a range, with or without a condition.

    lr:         {low: 1e-3, high: 1e-2, log: true}
    window:     {choices: [8, 16, 64], when: {num_loops: ">1", local: swa}}

Values are checked and converted by the knob's own type, so `tokens: {choices: [1M, 4M]}` holds whole numbers. A range
over a whole-number knob is whole, bounds included; a `step` must lead from low to high exactly.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from orchestrator.spec.condition import Condition, parse_condition
from orchestrator.spec.knobs import KNOBS, closest
from orchestrator.spec.problem import Problem, problems_of
from orchestrator.spec.sections import Section
from orchestrator.spec.written import EntryError, shown

T = TypeVar("T")


_LISTABLE = 100_000
"""Most values of a stepped range that are listed; beyond that it counts as continuous."""


class Parameter(Section):
    """What choices and ranges have in common."""

    when: dict[str, Any] = Field(default_factory=dict)

    @field_validator("when")
    @classmethod
    def _readable(cls, when: dict[str, Any]) -> dict[str, Any]:
        for knob, written in when.items():
            if knob not in KNOBS:
                raise EntryError(knob, f"names {knob!r}, which is no knob{closest(knob, KNOBS)}")
            try:
                parse_condition(knob, written)
            except ValueError as error:
                raise EntryError(knob, str(error)) from error
        return when

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """All of `when`."""
        return tuple(parse_condition(knob, written) for knob, written in self.when.items())

    def applies(self, knobs: Mapping[str, Any]) -> bool:
        """Whether the parameter is part of a point with these knobs."""
        return all(condition.holds(knobs) for condition in self.conditions)

    def every(self) -> Sequence[Any] | None:
        """All values in order, or None when there are infinitely many."""
        raise NotImplementedError

    def ends(self) -> Sequence[Any]:
        """Enough values to find a point that cannot be: all choices, both ends of a range."""
        raise NotImplementedError


class Choices(Parameter, Generic[T]):
    """A list of values, in the file's order."""

    choices: Annotated[tuple[T, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        seen: dict[T, T] = {}
        for choice in self.choices:
            if choice in seen:
                message = f"choices {shown(seen[choice])} and {shown(choice)} are equal; list every value once"
                raise EntryError("choices", message)
            seen[choice] = choice
        return self

    def every(self) -> Sequence[T]:
        """The choices."""
        return self.choices

    def ends(self) -> Sequence[T]:
        """The choices."""
        return self.choices


class Range(Parameter, Generic[T]):
    """Numbers from low to high, both included."""

    low: T
    high: T
    log: bool = False
    step: T | None = None

    @model_validator(mode="after")
    def _orderly(self) -> Self:
        low, high, step = self._numbers()
        if low > high:
            raise EntryError("low", f"low is {low!r} and high is {high!r}; low must be at most high")
        if self.log and low <= 0:
            raise EntryError("low", f"low is {low!r}; it must be positive when log is true")
        if self.log and step is not None:
            raise EntryError("step", f"step is {step!r}; log and step cannot be used together, leave one out")
        if step is not None and not _leads(low, high, step):
            message = f"step is {step!r}; it must be positive and lead from low ({low!r}) to high ({high!r})"
            raise EntryError("step", message)
        return self

    def _numbers(self) -> tuple[Any, Any, Any]:
        for name, value in (("low", self.low), ("high", self.high), ("step", self.step)):
            if isinstance(value, bool | str) or (value is None and name != "step"):
                raise EntryError(name, f"{name} is {shown(value)}; a range needs numbers, use choices instead")
        return self.low, self.high, self.step

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        return isinstance(self.low, int)

    def every(self) -> Sequence[Any] | None:
        """The values, when they are whole numbers or have a step or are one; None when they are too many to list."""
        low, high, step = self._numbers()
        if low == high:
            return (low,)
        if self.whole:
            return range(low, high + 1, step or 1)
        if step is None:
            return None
        count = int((_exact(high) - _exact(low)) / _exact(step))
        if count > _LISTABLE:
            return None
        return tuple(float(_exact(low) + index * _exact(step)) for index in range(count + 1))

    def ends(self) -> Sequence[Any]:
        """Low and high."""
        return tuple(dict.fromkeys((self.low, self.high)))


def read_search(written: object) -> tuple[dict[str, Parameter], list[Problem]]:
    """The parameters that can be read, in the file's order, and what is wrong with the others."""
    if not isinstance(written, Mapping):
        message = f"search is {shown(written)}; write one line per knob, such as 'num_loops: {{choices: [1, 2]}}'"
        return {}, [Problem(("search",), message)]
    search: dict[str, Parameter] = {}
    problems: list[Problem] = []
    for name, entry in written.items():
        path = ("search", name)
        if isinstance(entry, Parameter):
            search[name] = entry
        elif name not in KNOBS:
            problems.append(Problem(path, f"{shown(name)} is no knob that can be searched{closest(str(name), KNOBS)}"))
        elif not isinstance(entry, Mapping):
            message = f"{name} is {shown(entry)}; write {{choices: [...]}} or {{low: ..., high: ...}}"
            problems.append(Problem(path, message))
        elif "choices" not in entry and not KNOBS[name].numeric:
            problems.append(Problem(path, f"{name} takes no numbers; write {{choices: [...]}}"))
        else:
            form: Any = Choices if "choices" in entry else Range
            try:
                search[name] = form[KNOBS[name].type].model_validate(entry)
            except ValidationError as error:
                problems += problems_of(error, path, form, entry)
    return search, problems


def _leads(low: Any, high: Any, step: Any) -> bool:
    """Whether a number of steps leads from low to high exactly."""
    try:
        return step > 0 and not (_exact(high) - _exact(low)) % _exact(step)
    except ArithmeticError:  # more steps than decimals can count
        return False


def _exact(number: Any) -> Decimal:
    return Decimal(str(number))
