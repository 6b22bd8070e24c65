"""A new study that begins with what another one has already found.

A trial of the old study is taken over when the new study could have asked for it and would have got the same result:
its configuration, resolved under the new study file, has the same fingerprint, its seed is one of the new study's, and
every metric that the new objectives and constraints need is known and was measured on the same architecture. It counts
in the new budget like any other configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.configuration import Configuration, resolve, written_knobs
from orchestrator.constraints import violations
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.journal_store import journals
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.replicates import same_for_all_seeds
from orchestrator.spec import StudySpec
from orchestrator.spec.search import Parameter
from orchestrator.studies import read_spec, read_study
from orchestrator.study import Study
from orchestrator.study_identity import refuse_other_data


@dataclass(frozen=True, kw_only=True)
class Fork:
    """A study file under a new name, and the study whose trials it takes over."""

    spec: StudySpec
    source: StudyRecord
    source_spec: StudySpec

    @classmethod
    def of(cls, home: Home, spec: StudySpec, corpora: Mapping[str, str], name: str) -> "Fork":
        """Fork the existing study of the file's name; a `StudyError` when there is none, or when `name` is taken."""
        source = read_study(home, spec.name)
        if journals(home).exists(name):
            raise StudyError(f"study {name} exists already; give --fork a new name, or `plt resume {name}`")
        source_spec, known = read_spec(home, spec.name)
        refuse_other_data(spec.name, known, corpora)
        return cls(spec=spec.model_copy(update={"name": name}), source=source, source_spec=source_spec)

    def into(self, study: Study) -> str:
        """Take over what can be; says in one line how much that was."""
        finished = [trial for trial in self.source.trials if trial.state is TrialState.COMPLETE]
        taken = 0
        for trial in finished:
            configuration = self._as_asked_now(trial)
            if configuration is not None:
                study.adopt(configuration, trial.seed, trial.metrics, f"{self.source.name}/{trial.number}")
                taken += 1
        rest = len(finished) - taken
        return f"took over {taken} finished trials of {self.source.name}" + (f"; {rest} do not apply" if rest else "")

    def _as_asked_now(self, trial: TrialRecord) -> Configuration | None:
        """The trial's configuration as a point of the new study, if it is one and its metrics serve."""
        params = self._params(trial)
        if params is None or trial.seed not in self.spec.seeds:
            return None
        try:
            configuration = resolve(self.spec, params)
        except ValueError:
            return None
        if configuration.fingerprint != trial.configuration or not self._serves(trial, configuration):
            return None
        return configuration

    def _params(self, trial: TrialRecord) -> dict[str, Any] | None:
        """The new study's parameters that give the trial's knobs; None where one is not among those it searches."""
        params: dict[str, Any] = {}
        for name, parameter in self.spec.search.items():
            if parameter.applies(written_knobs(self.spec, params)):
                value = trial.params.get(name, trial.knobs.get(name))
                if not _contains(parameter, value):
                    return None
                params[name] = value
        return params

    def _serves(self, trial: TrialRecord, configuration: Configuration) -> bool:
        objectives = [objective.metric for objective in self.spec.objectives]
        judged = violations(self.spec.constraints, trial.metrics)
        if not all(metric in trial.metrics for metric in objectives) or len(judged) < len(self.spec.constraints):
            return False
        measured = any(same_for_all_seeds(name) for name in objectives) or bool(self.spec.constraints)
        before = resolve(self.source_spec, trial.params)
        return not measured or before.architecture == configuration.architecture


def _contains(parameter: Parameter, value: Any) -> bool:
    every = parameter.every()
    if every is not None:
        return value in every
    low, high = min(parameter.ends()), max(parameter.ends())
    return isinstance(value, int | float) and low <= value <= high
