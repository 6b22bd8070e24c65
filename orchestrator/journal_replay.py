"""A study's journal replayed for reading only: every look costs what was appended since the last one.

The outcome is what Optuna's own storage makes of the same entries: who may change what, and which entries count for
nothing. It differs in what is kept. A trial is turned into its record once and again only when an entry touched it, and
what thousands of trials repeat, the text of each distribution, is understood once.

Limits: one study, found by its name; never writes. Not for several threads at once.
"""

from collections.abc import Callable, Mapping
from typing import Any

from optuna.distributions import BaseDistribution, check_distribution_compatibility, json_to_distribution
from optuna.storages.journal import BaseJournalBackend
from optuna.storages.journal._storage import JournalOperation
from optuna.trial import TrialState as StoredState

from orchestrator import stored_trial
from orchestrator.journal import damaged
from orchestrator.records import TrialRecord, TrialState

_CONSTRAINT = "constraints:"
_STATES = {state.value: TrialState(state.name) for state in StoredState}


class _Trial:
    """One trial as its entries left it; a finished one does not change any more."""

    __slots__ = ("attributes", "constraints", "distributions", "finished", "params", "state", "study", "values")

    def __init__(self, study: int, entry: Mapping[str, Any], distributions: dict[str, BaseDistribution]) -> None:
        self.study, self.distributions = study, distributions
        stored = entry.get("params", {})
        self.params = {name: distributions[name].to_external_repr(value) for name, value in stored.items()}
        self.turn(_STATES[entry.get("state", StoredState.RUNNING.value)])
        self.attributes: dict[str, Any] = entry.get("user_attrs", {})
        self.constraints = _constraints(entry.get("system_attrs", {}))
        value, self.values = entry.get("value"), entry.get("values")
        if value is not None:
            self.values = [value]

    def turn(self, state: TrialState) -> None:
        """Another state."""
        self.state, self.finished = state, state.finished


class JournalReplay:
    """What one journal says of one study."""

    def __init__(self, journal: BaseJournalBackend, name: str, place: str) -> None:
        """A `StudyError` names the place when the journal cannot be what was written there, or holds no such study."""
        self._journal, self._name, self._place = journal, name, place
        self._count = 0
        """Entries read so far."""
        self._studies: dict[int, tuple[str, dict[str, Any]]] = {}
        self._made, self._id = 0, -1
        self._trials: list[_Trial] = []
        self._numbers: list[int] = []
        self._members: dict[int, list[int]] = {}
        self._texts: dict[str, BaseDistribution] = {}
        self._touched: set[int] = set()
        self._records: dict[int, TrialRecord] = {}
        self._apply: dict[int, Callable[[dict[str, Any]], None]] = {
            JournalOperation.CREATE_STUDY: self._create_study,
            JournalOperation.DELETE_STUDY: self._delete_study,
            JournalOperation.SET_STUDY_USER_ATTR: self._set_study_attribute,
            JournalOperation.CREATE_TRIAL: self._create_trial,
            JournalOperation.SET_TRIAL_PARAM: self._set_param,
            JournalOperation.SET_TRIAL_STATE_VALUES: self._set_state,
            JournalOperation.SET_TRIAL_USER_ATTR: self._set_attribute,
            JournalOperation.SET_TRIAL_SYSTEM_ATTR: self._set_system_attribute,
        }
        self.sync()

    def sync(self) -> None:
        """Read what is new; a `StudyError` as above."""
        try:
            for entry in self._journal.read_logs(self._count):
                self._count += 1
                apply = self._apply.get(entry["op_code"])
                if apply is not None:
                    apply(entry)
            self._turn_to(self._find())
        except (ValueError, KeyError) as error:
            raise damaged(self._place, error) from error

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The study's own attributes."""
        return self._studies[self._id][1]

    def trials(self) -> tuple[TrialRecord, ...]:
        """The trials that `Study.ask` made, by number; the same object as before for one that stands as before."""
        last = next(reversed(self._records), -1)
        for trial_id in sorted(self._touched):
            trial, number = self._trials[trial_id], self._numbers[trial_id]
            if trial.study == self._id and "configuration" in trial.attributes:
                late = number < last and number not in self._records
                self._records[number] = _record(number, trial)
                if late:
                    self._records = dict(sorted(self._records.items()))
        self._touched.clear()
        return tuple(self._records.values())

    def _turn_to(self, study: int) -> None:
        """Another study may have taken the place of one that was deleted."""
        if study != self._id:
            self._id = study
            self._records.clear()
            self._touched.update(self._members[study])

    def _find(self) -> int:
        found = [study_id for study_id, (name, _) in self._studies.items() if name == self._name]
        if not found:
            raise KeyError(f"no study {self._name!r}")
        return found[0]

    def _create_study(self, entry: dict[str, Any]) -> None:
        if entry["study_name"] not in [name for name, _ in self._studies.values()]:
            self._studies[self._made] = (entry["study_name"], {})
            self._members[self._made] = []
            self._made += 1

    def _delete_study(self, entry: dict[str, Any]) -> None:
        self._studies.pop(entry["study_id"], None)

    def _set_study_attribute(self, entry: dict[str, Any]) -> None:
        study = self._studies.get(entry["study_id"])
        if study is not None:
            study[1].update(entry["user_attr"])

    def _create_trial(self, entry: dict[str, Any]) -> None:
        study = entry["study_id"]
        if study not in self._studies:
            return
        distributions = {name: self._distribution(text) for name, text in entry.get("distributions", {}).items()}
        trial_id, members = len(self._trials), self._members[study]
        self._trials.append(_Trial(study, entry, distributions))
        self._numbers.append(len(members))
        members.append(trial_id)
        self._touched.add(trial_id)

    def _set_param(self, entry: dict[str, Any]) -> None:
        trial, name = self._open(entry), entry["param_name"]
        if trial is None:
            return
        distribution = self._distribution(entry["distribution"])
        earlier = (self._trials[each].distributions for each in self._members[trial.study])
        known = next((each[name] for each in earlier if name in each), None)
        if known is not None:
            try:
                check_distribution_compatibility(known, distribution)
            except ValueError:
                return
        trial.params[name] = distribution.to_external_repr(entry["param_value_internal"])
        trial.distributions[name] = distribution

    def _set_state(self, entry: dict[str, Any]) -> None:
        trial = self._open(entry)
        if trial is None:
            return
        trial.turn(_STATES[entry["state"]])
        if entry["values"] is not None:
            trial.values = entry["values"]

    def _set_attribute(self, entry: dict[str, Any]) -> None:
        trial = self._open(entry)
        if trial is not None:
            trial.attributes.update(entry["user_attr"])

    def _set_system_attribute(self, entry: dict[str, Any]) -> None:
        trial = self._open(entry)
        if trial is not None:
            trial.constraints.update(_constraints(entry["system_attr"]))

    def _open(self, entry: dict[str, Any]) -> _Trial | None:
        """The trial that an entry may change: it is there and not finished."""
        trial_id: int = entry["trial_id"]
        if trial_id >= len(self._trials) or self._trials[trial_id].finished:
            return None
        self._touched.add(trial_id)
        return self._trials[trial_id]

    def _distribution(self, text: str) -> BaseDistribution:
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = json_to_distribution(text)
        return known


def _constraints(attributes: Mapping[str, Any]) -> dict[str, float]:
    """Amounts by constraint, from Optuna's own attributes of a trial."""
    return {key.removeprefix(_CONSTRAINT): each for key, each in attributes.items() if key.startswith(_CONSTRAINT)}


def _record(number: int, trial: _Trial) -> TrialRecord:
    values = tuple(trial.values) if trial.values is not None and trial.state is TrialState.COMPLETE else None
    return stored_trial.trial_record(
        number=number,
        state=trial.state,
        params=trial.params,
        values=values,
        violations=trial.constraints,
        attributes=trial.attributes,
    )
