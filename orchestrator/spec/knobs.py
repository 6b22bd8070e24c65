"""Every knob that can be fixed, searched or named in a condition: its section and the values it may have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from orchestrator.spec.sections import DataSection, ModelSection, Section, TrainSection
from orchestrator.spec.written import shown


@dataclass(frozen=True)
class Knob:
    """One knob."""

    name: str
    section: str
    """`model`, `data` or `train`."""
    type: Any
    """Its annotation, with validators."""

    def parse(self, written: object) -> Any:
        """The value that a file's text, number or truth value stands for; a `ValueError` says what is allowed."""
        try:
            return TypeAdapter(self.type, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(written)
        except ValidationError as error:
            raise ValueError(f"{self.name} cannot be {shown(written)}; it must be {allowed(error.errors())}") from None

    @property
    def numeric(self) -> bool:
        """Whether numbers are among the values, so that a range can be searched."""
        try:
            return not isinstance(self.parse(1), bool | str)
        except ValueError:
            return False


def closest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known name, or nothing."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


_ALLOWED: Mapping[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "too_short": "a list of at least one",
}
"""Pydantic's kinds of finding, in a study file's words."""


def allowed(details: Sequence[Any]) -> str:
    """What would be right where pydantic found these things wrong, to stand after "it must be"."""
    texts = (
        _ALLOWED.get(detail["type"])
        or detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ").removeprefix("must be ")
        for detail in details
    )
    return " or ".join(dict.fromkeys(texts))


def _knobs(section: str, fields: type[Section]) -> dict[str, Knob]:
    return {
        name: Knob(name, section, Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        for name, field in fields.model_fields.items()
        if field.alias is None  # `from`, which is no knob: it stands for many
    }


KNOBS: Mapping[str, Knob] = {
    **_knobs("model", ModelSection),
    **_knobs("data", DataSection),
    **_knobs("train", TrainSection),
}
"""By flat name."""
