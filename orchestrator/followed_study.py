"""A study that another process drives, read again and again: every time costs only what is new in its journal."""

from orchestrator.home import Home
from orchestrator.journal import open_journal, our_trials, study_record, trial_record
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.studies import refuse_unknown


class FollowedStudy:
    """Reads one study; never writes."""

    def __init__(self, home: Home, name: str) -> None:
        """A `StudyError` names the closest studies when there is none of this name."""
        refuse_unknown(home, name)
        self._home, self._name = home, name
        self._storage = open_journal(home.journal(name), name)
        self._study_id = self._storage.get_study_id_from_name(name)
        self._finished: dict[int, TrialRecord] = {}

    def read(self) -> StudyRecord:
        """How the study stands now; a `StudyError` when it was taken away meanwhile.

        Once no driver lives the record is final, so it is read again after that was seen.
        """
        refuse_unknown(self._home, self._name)
        record = self._read()
        return record if record.driver is not None else self._read()

    def _read(self) -> StudyRecord:
        for trial in our_trials(self._storage, self._study_id):
            if trial.number not in self._finished and (record := trial_record(trial)).state.finished:
                self._finished[trial.number] = record
        trials = (
            self._finished.get(trial.number) or trial_record(trial)
            for trial in our_trials(self._storage, self._study_id)
        )
        return study_record(self._storage, self._home, self._name, tuple(trials))
