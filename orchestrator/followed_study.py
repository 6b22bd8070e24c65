"""A study that another process drives, read again and again: every time costs only what is new in its journal."""

from collections.abc import Hashable
from threading import Lock

from orchestrator.driver_lock import living_driver
from orchestrator.home import Home
from orchestrator.journal import StoredTrial, open_journal, our_trials, study_record, trial_record
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.requests import Request, pending
from orchestrator.studies import refuse_unknown


def standing_mark(home: Home, name: str) -> Hashable:
    """Something that is equal at two moments when a study stood the same at both: its journal and its driver.

    Costs microseconds. A `StudyError` when there is no such study.
    """
    refuse_unknown(home, name)
    stat = home.journal(name).stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, living_driver(home, name)


class FollowedStudy:
    """Reads one study; never writes. Several threads may share one."""

    def __init__(self, home: Home, name: str) -> None:
        """A `StudyError` names the closest studies when there is none of this name."""
        refuse_unknown(home, name)
        self._home, self._name, self._lock = home, name, Lock()
        self._mark: Hashable = None
        self._record: StudyRecord | None = None
        self._file: int | None = None
        """Inode of the journal that is open; None until the first look, which takes longest."""

    def read(self) -> StudyRecord:
        """How the study stands now, the same object while that has not changed; a `StudyError` when it was taken away.

        Once no driver lives the record is final, so it is read again after that was seen.
        """
        with self._lock:
            mark = standing_mark(self._home, self._name)
            if self._record is None or mark != self._mark:
                if self._home.journal(self._name).stat().st_ino != self._file:
                    self._open()
                record = self._read()
                self._record = record if record.driver is not None else self._read()
                self._mark = mark
            return self._record

    def pending(self) -> list[Request]:
        """What was asked of the study's driver and has no answer yet, the oldest first."""
        with self._lock:
            if self._file is None:
                self._open()
            return pending(self._storage.get_study_user_attrs(self._study_id))

    def _open(self) -> None:
        """Begin with the journal that is there now; another one may have taken the old one's place."""
        path = self._home.journal(self._name)
        file = path.stat().st_ino
        self._storage = open_journal(path, self._name)
        self._study_id = self._storage.get_study_id_from_name(self._name)
        self._finished: dict[int, TrialRecord] = {}
        self._file = file

    def _read(self) -> StudyRecord:
        trials = tuple(self._trial(trial) for trial in our_trials(self._storage, self._study_id))
        return study_record(self._storage, self._home, self._name, trials)

    def _trial(self, trial: StoredTrial) -> TrialRecord:
        """The trial's record; the same object every time once it has finished."""
        known = self._finished.get(trial.number)
        if known is not None:
            return known
        record = trial_record(trial)
        if record.state.finished:
            self._finished[trial.number] = record
        return record
