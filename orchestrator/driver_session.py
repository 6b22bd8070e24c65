"""The session that a driver holds in the database: its lock there, and the epoch that its entries carry.

The lock ends with the session, however that ends. A session that broke is made again by the next statement: what the
server still has of the old one is ended, the lock is taken again, and the driver goes on if nobody was there meanwhile.
"""

import errno
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from orchestrator.database import Address, Connection
from orchestrator.errors import DatabaseError, StudyError
from orchestrator.process_name import process_name

if TYPE_CHECKING:
    import psycopg

_TRIES, _PAUSE_SECONDS = 10, 0.05
"""A session is over milliseconds after its driver was killed."""
_RESERVE = "insert into plt_study (name) values (%s) on conflict (name) do nothing"
_FIND = "select id, epoch, driver from plt_study where name = %s"
TABLE = "(to_regclass('plt_study')::oid::bigint & 2147483647)::integer"
"""The first number of a study's advisory lock, so that several schemas of a database do not meet; the second is the
study's."""
_LOCK = f"select pg_try_advisory_lock({TABLE}, %s)"
_NEXT = "update plt_study set epoch = epoch + 1, driver = %s where id = %s returning epoch"
_END_OLD = """
select pg_terminate_backend(pid) from pg_stat_activity
where application_name = %s and usename = current_user and pid <> pg_backend_pid()
"""


class DriverSession:
    """Of one driver and one study."""

    def __init__(self, address: Address, name: str) -> None:
        """Nothing is connected yet."""
        self._address, self._name = address, name
        self._application = f"plt-driver-{uuid4().hex}"
        self.connection = Connection(address, application=self._application, prepare=self._prepare)
        self._ended = False
        self.study = 0
        """The study's number."""
        self.epoch = 0
        """From 1, once it has begun."""

    def begin(self) -> None:
        """Become the driver; a `StudyError` names the one that is."""
        self.connection.run("select")

    def close(self) -> None:
        """Be it no more, for good."""
        self._ended = True
        self.connection.close(last="select pg_advisory_unlock_all()")  # or the server would notice a moment later

    def _prepare(self, connection: "psycopg.Connection") -> None:
        if self._ended:
            raise StudyError(f"this driver of study {self._name} has ended; nothing more is written")
        if self.epoch:
            self._again(connection)
        else:
            self._first(connection)

    def _first(self, connection: "psycopg.Connection") -> None:
        connection.execute(_RESERVE, [self._name])
        self.study, _, _ = self._row(connection)
        if not self._locked(connection):
            _, _, driver = self._row(connection)
            raise StudyError(
                f"study {self._name} is being driven by {driver or 'another process'}; wait for it or stop it, see "
                f"`plt status {self._name}`"
            )
        row = connection.execute(_NEXT, [process_name(), self.study]).fetchone()
        assert row is not None
        self.epoch = row[0]

    def _again(self, connection: "psycopg.Connection") -> None:
        connection.execute(_END_OLD, [self._application])
        self._refuse_another(connection)
        locked = self._locked(connection)
        self._refuse_another(connection)
        if not locked:
            raise DatabaseError(
                errno.ETIMEDOUT,
                f"the lock of study {self._name} is not free",
                self._address.shown,
                "see who holds it in pg_locks",
            )

    def _refuse_another(self, connection: "psycopg.Connection") -> None:
        study, epoch, driver = self._row(connection)
        if (study, epoch) != (self.study, self.epoch):
            raise superseded(self._name, driver)

    def _row(self, connection: "psycopg.Connection") -> tuple[int, int, str | None]:
        row = connection.execute(_FIND, [self._name]).fetchone()
        if row is None:
            raise StudyError(f"study {self._name} was deleted from the database; nothing more is written")
        return row[0], row[1], row[2]

    def _locked(self, connection: "psycopg.Connection") -> bool:
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_SECONDS)
            row = connection.execute(_LOCK, [self.study]).fetchone()
            if row is not None and row[0]:
                return True
        return False


def superseded(name: str, driver: str | None) -> StudyError:
    """What to say when another driver has taken over."""
    return StudyError(
        f"study {name} was taken over by {driver or 'another driver'} while this driver was cut off from the database; "
        "this one stops, and nothing of it counts from then on"
    )
