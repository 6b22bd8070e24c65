"""The state that the address bar holds: a copied link shows a colleague the same study, points, metrics and trial.

Pure: from query parameters to an `Address` and back. What a person could mistype in an address is ignored, never an
error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

CurveAxis = Literal["step", "tokens"]
_SEPARATOR = "~"
"""Between the chosen configurations; it needs no escaping in an address."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """What a page shows. None means the page's own choice."""

    study: str | None = None
    picks: tuple[str, ...] = ()
    """Fingerprints of the configurations that are compared, in the order they were chosen."""
    baseline: str | None = None
    """The one of them that differences are counted from; the first when None."""
    y: str | None = None
    """Metric on the vertical axis of the trade-offs."""
    left: str | None = None
    """Metric on the horizontal axis of the left chart."""
    right: str | None = None
    """Metric on the horizontal axis of the right chart."""
    curve: str | None = None
    """Metric of the learning curves."""
    by: CurveAxis | None = None
    """Horizontal axis of the learning curves."""
    trial: int | None = None
    """Trial number."""

    @classmethod
    def from_params(cls, params: Mapping[str, str]) -> "Address":
        """Read query parameters; unknown ones and values that cannot be are ignored."""
        by, trial = params.get("by"), params.get("trial", "")
        texts = {name: params.get(name) or None for name in ("study", "baseline", "y", "left", "right", "curve")}
        return cls(
            **texts,
            picks=tuple(dict.fromkeys(pick for pick in params.get("picks", "").split(_SEPARATOR) if pick)),
            by="tokens" if by == "tokens" else "step" if by == "step" else None,
            trial=int(trial) if trial.isascii() and trial.isdigit() else None,
        )

    def to_params(self) -> dict[str, str]:
        """Query parameters, without what is the page's own choice."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values["picks"] = _SEPARATOR.join(self.picks) or None
        return {name: str(value) for name, value in values.items() if value is not None}

    def filled_from(self, other: "Address") -> "Address":
        """This address with its gaps filled from another one of the same study: what a page remembers of the others."""
        if self.study not in (None, other.study):
            return self
        gaps = {
            field.name: getattr(other, field.name) for field in fields(self) if getattr(self, field.name) in (None, ())
        }
        return replace(self, **gaps)

    def toggled(self, fingerprints: tuple[str, ...]) -> "Address":
        """One point clicked is added, or taken out when it was chosen; several (a box) are all added."""
        if len(fingerprints) == 1 and fingerprints[0] in self.picks:
            picks = tuple(pick for pick in self.picks if pick != fingerprints[0])
        else:
            picks = tuple(dict.fromkeys((*self.picks, *fingerprints)))
        return replace(self, picks=picks)
