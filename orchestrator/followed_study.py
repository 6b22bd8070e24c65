"""A study that another process drives, read again and again: every time costs only what is new in its journal."""

from collections.abc import Hashable
from threading import Lock

from orchestrator.driver_lock import living_driver
from orchestrator.home import Home
from orchestrator.journal import study_record
from orchestrator.journal_replay import JournalReplay
from orchestrator.journal_store import Standing, journals
from orchestrator.records import StudyRecord
from orchestrator.requests import Request, pending
from orchestrator.studies import refuse_unknown, unknown


def standing_mark(home: Home, name: str) -> Hashable:
    """Something that is equal at two moments when a study stood the same at both: its journal and its driver.

    Costs microseconds. A `StudyError` when there is no such study.
    """
    return _standing(home, name), living_driver(home, name)


def _standing(home: Home, name: str) -> Standing:
    standing = journals(home).standing(name)
    if standing is None:
        raise unknown(home, name)
    return standing


class FollowedStudy:
    """Reads one study; never writes. Several threads may share one."""

    def __init__(self, home: Home, name: str) -> None:
        """A `StudyError` names the closest studies when there is none of this name."""
        refuse_unknown(home, name)
        self._home, self._name, self._lock = home, name, Lock()
        self._mark: Hashable = None
        self._record: StudyRecord | None = None
        self._replay: JournalReplay | None = None
        """None until the first look, which takes longest."""
        self._identity: Hashable = None
        """Of the journal that is replayed."""

    def read(self) -> StudyRecord:
        """How the study stands now, the same object while that has not changed; a `StudyError` when it was taken away.

        Once no driver lives the record is final, so it is read again after that was seen.
        """
        with self._lock:
            mark = standing_mark(self._home, self._name)
            if self._record is None or mark != self._mark:
                record = self._read()
                self._record = record if record.driver is not None else self._read()
                self._mark = mark
            return self._record

    def pending(self) -> list[Request]:
        """What was asked of the study's driver and has no answer yet, the oldest first."""
        with self._lock:
            return pending(self._latest().attributes)

    def _read(self) -> StudyRecord:
        replay = self._latest()
        return study_record(replay.attributes, self._home, self._name, replay.trials())

    def _latest(self) -> JournalReplay:
        """The journal that is there now, up to its end; another one may have taken the old one's place."""
        identity = _standing(self._home, self._name).identity
        replay, self._replay = self._replay, None  # not kept when it cannot be read
        if replay is None or identity != self._identity:
            store = journals(self._home)
            replay = JournalReplay(store.journal(self._name), self._name, store.place(self._name))
            self._identity = identity
        else:
            replay.sync()
        self._replay = replay
        return replay
