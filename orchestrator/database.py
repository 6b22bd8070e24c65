"""The studies' PostgreSQL: its address, a connection with bounded patience, and what its errors mean.

An address is `postgresql://USER@HOST/DATABASE`, with everything that libpq understands behind `?`; the password is in
`PGPASSWORD`, libpq's password file, or the address. Neither user nor password is in anything that is said. psycopg is
an extra (`postgres`) and imported with the first address.
"""

import errno
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

from orchestrator.errors import DatabaseError, ServiceError

if TYPE_CHECKING:
    import psycopg

_DEFAULTS = {
    "client_encoding": "utf8",
    "connect_timeout": "5",
    "tcp_user_timeout": "15000",  # a line that was cut is noticed in 15 s, not in 15 minutes
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "target_session_attrs": "read-write",  # of several hosts, the one that may be written to
}
_SESSION = """
select set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '15000', false),
    set_config('lock_timeout', '10s', false), set_config('statement_timeout', '60s', false)
"""
"""The server's side of it: a client that is gone holds nothing for longer than half a minute."""
_LOOK = "see that it runs and can be reached from here"
ALLOW = "have its owner grant this user `create` on the schema and all on its tables"
_SIGN_IN = "set PGPASSWORD, and the user in PLT_STORAGE"
_FULL, _READ_ONLY, _DENIED, _NO_TABLE = "53100", "25006", "42501", "42P01"
_HOW = "use postgresql://USER@HOST/DATABASE with the password in PGPASSWORD, or unset it to keep studies in PLT_HOME"


class AlreadyThereError(Exception):
    """Something unique is in the database already."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a database is."""

    parameters: Mapping[str, Any] = field(repr=False)
    """libpq's; secrets among them."""
    shown: str
    """For people."""

    @classmethod
    def of(cls, uri: str) -> Self:
        """A `ServiceError` when it is none, or when psycopg is not installed; neither repeats what may be a secret."""
        if not uri.startswith(("postgresql://", "postgres://")):
            scheme = re.match(r"[a-z0-9+]+(?=:)", uri)
            kind = f"a {scheme[0]} address" if scheme else "no address of a database"
            raise ServiceError(f"PLT_STORAGE is {kind}; {_HOW}")
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError as error:
            raise ServiceError(
                "PLT_STORAGE is a PostgreSQL address and psycopg is not installed; "
                "`pip install 'plt-orchestrator[postgres]'`, or unset it to keep studies in PLT_HOME"
            ) from error
        try:
            found = conninfo_to_dict(uri)
        except psycopg.ProgrammingError:
            raise ServiceError(f"PLT_STORAGE cannot be read; {_HOW}") from None
        host, port, database = (str(found.get(name) or "") for name in ("host", "port", "dbname"))
        if "@" in host or not re.fullmatch(r"[\d,]*", port) or re.search(r"[/@]", database):
            raise ServiceError(
                "PLT_STORAGE cannot be read: write @ and / in a password as %40 and %2F, or put it into PGPASSWORD"
            )
        shown = f"postgresql://{host}{':' + port if port else ''}/{database}"
        return cls(parameters={**_DEFAULTS, **found}, shown=f"the database {shown}")


class Connection:
    """One connection, made when it is needed and made again when it broke. Several threads may share it."""

    def __init__(
        self,
        address: Address,
        *,
        application: str = "plt",
        prepare: "Callable[[psycopg.Connection], None] | None" = None,
    ) -> None:
        """`prepare` is given every new connection before anybody else; what it raises ends the attempt."""
        self._address, self._application, self._prepare = address, application, prepare
        self._lock = RLock()
        self._open: psycopg.Connection | None = None

    def run(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        """The rows of one statement, which is a transaction of its own.

        Once it may be tried twice: a connection that was idle may have died unnoticed. So it must bear repetition.

        Raises:
            AlreadyThereError: It would have stored something twice.
            DatabaseError: The database cannot be reached, or refuses.
        """
        import psycopg

        with self._lock:
            was_open = self._open is not None
            try:
                return self._run(statement, parameters)
            except psycopg.errors.UniqueViolation as error:
                raise AlreadyThereError from error
            except psycopg.Error as error:
                if not (was_open and self._open is None):
                    raise self._meaning(error) from None
            try:
                return self._run(statement, parameters)
            except psycopg.errors.UniqueViolation as error:
                raise AlreadyThereError from error
            except psycopg.Error as error:
                raise self._meaning(error) from None

    def __del__(self) -> None:
        self.close()

    def close(self, last: str | None = None) -> None:
        """Until it is used again; with a last statement if it is open and the server still hears it."""
        with self._lock:
            if self._open is None:
                return
            if last is not None:
                import psycopg

                with suppress(psycopg.Error):
                    self._open.execute(last.encode())
            self._open.close()
            self._open = None

    def _run(self, statement: str, parameters: Mapping[str, Any] | None) -> Sequence[tuple[Any, ...]]:
        import psycopg

        connection = self._connected()
        try:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error:
            if connection.closed:
                self._open = None
            raise

    def _connected(self) -> "psycopg.Connection":
        if self._open is None:
            import psycopg

            connection = psycopg.connect(
                **{**self._address.parameters, "application_name": self._application}, autocommit=True
            )
            try:
                connection.execute(_SESSION)
                if self._prepare is not None:
                    self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._open = connection
        return self._open

    def _meaning(self, error: "psycopg.Error") -> Exception:
        """What to raise for an error of psycopg's; the error itself where it is a fault of ours."""
        import psycopg

        code, remedy = errno.ETIMEDOUT, _LOOK
        if error.sqlstate == _FULL:
            code, remedy = errno.ENOSPC, "make room there"
        elif error.sqlstate == _READ_ONLY:
            remedy = "see which server of the database may be written to"
        elif error.sqlstate == _DENIED:
            code, remedy = errno.EACCES, ALLOW
        elif error.sqlstate == _NO_TABLE:
            code, remedy = errno.ENOENT, "somebody took its tables away: restore a copy, or start anew"
        elif not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return error
        why = self._said(error)
        if "authentication failed" in why or "no password" in why:
            remedy = _SIGN_IN
        return DatabaseError(code, why, self._address.shown, remedy)

    def _said(self, error: "psycopg.Error") -> str:
        """The first line of an error, without user and password."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = re.sub(r"^connection failed: (connection to )?", "", lines[0])
        for name in ("password", "user"):
            secret = self._address.parameters.get(name)
            if secret:
                text = text.replace(f'"{secret}"', "***")
        return text
