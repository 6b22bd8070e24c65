"""A study's journal in PostgreSQL, made to survive a server that goes away at any moment.

    plt_study     one row for each study: how many entries it has, who drives it, and how many drivers it has had
    plt_journal   its entries, numbered from 0

An append is one statement: it counts, checks and writes, whole or not at all, on the disk when it returns. Every entry
has an identity of its own, so that one whose answer was lost is sent again without being there twice, even should the
first statement still be under way. A driver's says which driver it is (its epoch), and nothing is written once a later
one has taken over; nor when the database has fewer entries than were read of it, as after a failover that lost some.
Entries are numbered under the lock of the study's row, so readers see them in order and without gaps.
"""

from collections.abc import Generator
from typing import Any
from uuid import uuid4

from optuna.storages.journal import BaseJournalBackend

from orchestrator.database import AlreadyThereError, Connection
from orchestrator.driver_session import superseded
from orchestrator.errors import DatabaseError, StudyError
from orchestrator.journal_file import entry_text, parse_entry
from orchestrator.journal_store import Trouble, give_up

_MOST = 5000
"""Entries that are read at a time."""
_READ = """
select number, entry from plt_journal where study = %(study)s and number >= %(start)s order by number limit %(most)s
"""
_APPEND = """
with held as (
    update plt_study set entries = entries + %(count)s, written = now()
    where id = %(study)s and entries >= %(seen)s and (%(epoch)s::bigint is null or epoch = %(epoch)s)
    returning entries - %(count)s as before
)
insert into plt_journal (study, number, entry, id)
select %(study)s, held.before + line.position - 1, line.entry, line.id
from held, unnest(%(entries)s::text[], %(ids)s::uuid[]) with ordinality as line (entry, id, position)
returning number
"""
_STAND = "select entries, epoch, driver from plt_study where id = %(study)s"


class JournalDatabase(BaseJournalBackend):
    """One journal, appended to by several processes, read by anyone."""

    def __init__(
        self, connection: Connection, name: str, study: int, *, epoch: int | None = None, on_trouble: Trouble = give_up
    ) -> None:
        """`study` is its number in the database; `epoch` that of the driver, None for anybody else."""
        self._connection, self._name, self._study = connection, name, study
        self._epoch, self._on_trouble = epoch, on_trouble
        self._seen = 0

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """The entries after so many.

        Raises:
            ValueError: An entry is damaged or missing.
        """
        number = log_number_from
        while True:
            rows = self._run(_READ, {"study": self._study, "start": number, "most": _MOST})
            for found, text in rows:
                entry = parse_entry(text)
                if entry is None or found != number:
                    raise ValueError(f"entry {number + 1} cannot be read")
                number += 1
                self._seen = max(self._seen, number)
                yield entry
            if len(rows) < _MOST:
                return

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append the entries; while that fails, ask `on_trouble` what to do.

        Raises:
            StudyError: A later driver has taken over, or the study is not what it was.
        """
        values = {
            "study": self._study,
            "epoch": self._epoch,
            "seen": self._seen,
            "count": len(logs),
            "entries": [entry_text(log) for log in logs],
            "ids": [uuid4() for _ in logs],
        }
        try:
            if self._run(_APPEND, values):
                return
        except AlreadyThereError:
            return  # the statement before this one did it, and its answer was lost
        raise self._refused()

    def _run(self, statement: str, values: dict[str, Any]) -> Any:
        while True:
            try:
                return self._connection.run(statement, values)
            except DatabaseError as error:
                self._on_trouble(error)

    def _refused(self) -> StudyError:
        """Why nothing was written."""
        rows = self._run(_STAND, {"study": self._study})
        if not rows:
            return StudyError(f"study {self._name} was deleted from the database; nothing more is written")
        entries, epoch, driver = rows[0]
        if self._epoch is not None and epoch != self._epoch:
            return superseded(self._name, driver)
        return StudyError(
            f"the database has forgotten {self._seen - entries} entries of study {self._name}: a copy was restored, or "
            f"another server took over too early; `plt resume {self._name}` goes on from what is there"
        )
