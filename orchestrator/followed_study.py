"""A study that another process drives, read again and again: every time costs only what is new in its journal."""

from collections.abc import Hashable
from threading import Lock

from orchestrator.driver_lock import living_driver
from orchestrator.home import Home
from orchestrator.journal import study_record
from orchestrator.journal_replay import JournalReplay
from orchestrator.records import StudyRecord
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
        self._replay: JournalReplay | None = None
        """None until the first look, which takes longest."""
        self._file = 0
        """Inode of the journal that is replayed."""

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
        path = self._home.journal(self._name)
        file = path.stat().st_ino
        replay, self._replay = self._replay, None  # not kept when it cannot be read
        if replay is None or file != self._file:
            replay, self._file = JournalReplay(path, self._name), file
        else:
            replay.sync()
        self._replay = replay
        return replay
