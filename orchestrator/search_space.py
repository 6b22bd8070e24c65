"""The search space of a study in Optuna's terms: what a sampler draws from, and the list of points where it is finite.

Parameters are suggested in the file's order, each only where its condition holds, so a point has just the parameters
that apply to it (define-by-run).
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from orchestrator.configuration import Configuration, resolve, written_knobs
from orchestrator.spec import StudySpec
from orchestrator.spec.points import enumerate_points
from orchestrator.spec.search import Choices, Parameter, Range


class SearchSpace:
    """All points of one study."""

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self._distributions = {name: _distribution(parameter) for name, parameter in spec.search.items()}

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """Draw a point, parameter by parameter."""
        params: dict[str, Any] = {}
        for name, parameter in self._spec.search.items():
            if parameter.applies(written_knobs(self._spec, params)):
                params[name] = _suggest(trial, name, self._distributions[name])
        return params

    def distributions(self, params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        """What each parameter of a point was drawn from."""
        return {name: self._distributions[name] for name in params}

    @cached_property
    def configurations(self) -> tuple[Configuration, ...] | None:
        """Every distinct configuration in the file's order; None when the space is continuous or too large to list."""
        points = enumerate_points(self._spec)
        if points is None:
            return None
        distinct: dict[str, Configuration] = {}
        for point in points:
            configuration = resolve(self._spec, point)
            distinct.setdefault(configuration.fingerprint, configuration)
        return tuple(distinct.values())

    def points(self) -> list[dict[str, Any]] | None:
        """The parameters of every distinct configuration, in the file's order; None as for `configurations`."""
        if self.configurations is None:
            return None
        return [dict(configuration.params) for configuration in self.configurations]

    @property
    def size(self) -> int | None:
        """Number of distinct configurations; None as for `configurations`."""
        return None if self.configurations is None else len(self.configurations)


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Choices):
        return CategoricalDistribution(parameter.choices)
    assert isinstance(parameter, Range)
    if parameter.whole:
        return IntDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step or 1)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)


def _suggest(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(
            name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
    assert isinstance(distribution, FloatDistribution)
    return trial.suggest_float(name, distribution.low, distribution.high, step=distribution.step, log=distribution.log)
