"""The state that the address bar holds: a copied link shows a colleague the same study, points, metrics and trial.

Pure: from query parameters to an `Address` and back. What a person could mistype in an address is ignored, never an
error.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

CurveAxis = Literal["step", "tokens", "time"]
_SEPARATOR, _IS = "~", ":"
"""Between the items of a list, and between a metric and its number; neither needs escaping in an address."""
_TEXTS = ("study", "baseline", "y", "left", "right", "curve", "metric", "first", "second", "heads")


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
    budgets: Mapping[str, float] = field(default_factory=dict)
    """What a person would spend at most, by metric: lines in the trade-offs, beside the study's own constraints."""
    curve: str | None = None
    """Metric of the learning curves."""
    by: CurveAxis | None = None
    """Horizontal axis of the learning curves."""
    smooth: int | None = None
    """Over how many reports learning curves are averaged."""
    trial: int | None = None
    """Trial number."""
    metric: str | None = None
    """Metric that the Search page explains."""
    first: str | None = None
    """Parameter on the horizontal axis of the Search page's map."""
    second: str | None = None
    """Parameter on its vertical axis."""
    heads: str | None = None
    """Loop diagnostic that the Loops page shows by layer and head."""

    @classmethod
    def from_params(cls, params: Mapping[str, str]) -> "Address":
        """Read query parameters; unknown ones and values that cannot be are ignored."""
        by = params.get("by")
        texts = {name: params.get(name) or None for name in _TEXTS}
        return cls(
            **texts,
            picks=tuple(dict.fromkeys(pick for pick in params.get("picks", "").split(_SEPARATOR) if pick)),
            budgets=_budgets(params.get("budgets", "")),
            by=by if by in get_args(CurveAxis) else None,  # type: ignore[arg-type]  # one of the three now
            smooth=_whole(params.get("smooth", "")),
            trial=_whole(params.get("trial", "")),
        )

    def to_params(self) -> dict[str, str]:
        """Query parameters, without what is the page's own choice."""
        values: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        values["picks"] = _SEPARATOR.join(self.picks) or None
        values["budgets"] = _SEPARATOR.join(f"{name}{_IS}{value:.12g}" for name, value in self.budgets.items()) or None
        return {name: str(value) for name, value in values.items() if value is not None}

    def filled_from(self, other: "Address") -> "Address":
        """This address with its gaps filled from another one of the same study: what a page remembers of the others."""
        if self.study not in (None, other.study):
            return self
        gaps = {one.name: getattr(other, one.name) for one in fields(self) if _is_gap(getattr(self, one.name))}
        return replace(self, **gaps)

    def toggled(self, fingerprints: tuple[str, ...]) -> "Address":
        """One point clicked is added, or taken out when it was chosen; several (a box) are all added."""
        if len(fingerprints) == 1 and fingerprints[0] in self.picks:
            picks = tuple(pick for pick in self.picks if pick != fingerprints[0])
        else:
            picks = tuple(dict.fromkeys((*self.picks, *fingerprints)))
        return replace(self, picks=picks)

    def with_budget(self, metric: str, bound: float | None) -> "Address":
        """This address with another budget for one metric, or without one."""
        budgets = {name: value for name, value in self.budgets.items() if name != metric}
        return replace(self, budgets=budgets if bound is None else {**budgets, metric: bound})


def _is_gap(value: object) -> bool:
    return value is None or value == () or value == {}


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _budgets(text: str) -> dict[str, float]:
    budgets: dict[str, float] = {}
    for item in text.split(_SEPARATOR):
        metric, _, written = item.rpartition(_IS)
        try:
            bound = float(written)
        except ValueError:
            continue
        if metric and math.isfinite(bound):
            budgets[metric] = bound
    return budgets
