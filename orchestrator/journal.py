"""A study's Optuna journal: how it is made, opened, mended and read.

A journal holds one study. It is made whole or not at all, appended to by the driver alone, and read by anyone at any
time: an entry that is being written, or was cut short by a kill, is not there yet for a reader. Where it is kept is the
business of `orchestrator.journal_store`.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial as StoredTrial

from orchestrator import stored_trial
from orchestrator.driver_lock import living_driver
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.journal_store import Trouble, give_up, journals
from orchestrator.records import Objective, StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.spec import StudySpec

__all__ = ["StoredTrial", "create_journal", "damaged", "open_journal", "our_trials", "study_record", "trial_record"]


def create_journal(spec: StudySpec, home: Home, now: datetime) -> bool:
    """Make a study, with all that it is or not at all; False when there is one of its name already."""
    entries = _Entries()
    study = optuna.create_study(
        storage=JournalStorage(entries),
        study_name=spec.name,
        directions=[objective.direction for objective in spec.objectives],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # names columns in optuna-dashboard
        study.set_metric_names([objective.metric for objective in spec.objectives])
    study.set_user_attr("spec", spec.to_plain())
    study.set_user_attr("created", now.isoformat())
    return journals(home).create(spec.name, entries.all)


class _Entries(BaseJournalBackend):
    """A journal in memory."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        return self.all[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.all += logs


def open_journal(home: Home, name: str, on_trouble: Trouble = give_up, *, driving: bool = False) -> JournalStorage:
    """The storage of a study; a `StudyError` when its journal cannot be what was written there.

    `on_trouble` is asked about everything that fails. Only whoever holds the driver's lock is `driving`.
    """
    store = journals(home)
    try:
        storage = JournalStorage(store.journal(name, on_trouble, driving=driving))
        storage.get_study_id_from_name(name)
    except (ValueError, KeyError) as error:
        raise damaged(store.place(name), error) from error
    return storage


def damaged(place: str, error: Exception) -> StudyError:
    """What to say of a journal that cannot be read."""
    return StudyError(f"{place} is damaged ({error}); restore a copy, or move it away to start anew")


def our_trials(storage: JournalStorage, study_id: int) -> list[StoredTrial]:
    """Trials that `Study.ask` made; what others enqueue through Optuna is not part of the study."""
    return [trial for trial in storage.get_all_trials(study_id, deepcopy=False) if "configuration" in trial.user_attrs]


def trial_record(trial: StoredTrial) -> TrialRecord:
    """What is known of one of our trials; infeasible and failed ones have no values, whatever they measured."""
    return stored_trial.trial_record(
        number=trial.number,
        state=TrialState(trial.state.name),
        params=trial.params,
        values=tuple(trial.values) if trial.state is optuna.trial.TrialState.COMPLETE else None,
        violations=trial.constraints,
        attributes=trial.user_attrs,
    )


def study_record(attributes: Mapping[str, Any], home: Home, name: str, trials: tuple[TrialRecord, ...]) -> StudyRecord:
    """A study from its attributes and trials.

    Nothing is shown RUNNING without a living driver: then the study is INTERRUPTED and its trials are WAITING.
    """
    spec = attributes["spec"]
    stand = attributes.get("state", {"state": StudyState.CREATED.value, "message": ""})
    state, message, driver = StudyState(stand["state"]), stand["message"], living_driver(home, name)
    if driver is None:
        trials = tuple(replace(t, state=TrialState.WAITING) if t.state is TrialState.RUNNING else t for t in trials)
        if state in (StudyState.RUNNING, StudyState.PAUSED):
            state = StudyState.INTERRUPTED
            message = f"the driver ended without finishing; `plt resume {name}` continues it"
    return StudyRecord(
        name=name,
        question=spec["question"],
        state=state,
        objectives=tuple(Objective(**objective) for objective in spec["objectives"]),
        constraints=tuple(spec["constraints"]),
        search=tuple(spec["search"]),
        seeds=tuple(spec["seeds"]),
        spec=spec,
        budget=spec["budget"]["configurations"],
        trials=trials,
        created=datetime.fromisoformat(attributes["created"]),
        driver=driver,
        message=message,
    )
