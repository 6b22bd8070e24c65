"""Journals in a PostgreSQL database that a team shares. See `orchestrator.journal_store`.

Being the driver of a study is two things: the lock of its folder, as without a database, which the kernel keeps while
the database is away; and an advisory lock of the database, held by the session that the driver writes through, which
also drivers that do not share the folder meet. Whoever gets both is given the next epoch of the study. A driver whose
session ended comes back only while the epoch is still its own.

Tables are made by the first writer. A study that is driven and has no entry yet is not there for anybody else.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orchestrator.database import ALLOW, Address, Connection
from orchestrator.driver_session import TABLE, DriverSession
from orchestrator.errors import ServiceError
from orchestrator.folder_lock import folder_holder, folder_lock
from orchestrator.home import Home
from orchestrator.journal_store import Entry, Standing, Trouble, give_up
from orchestrator.process_name import process_name

if TYPE_CHECKING:
    from orchestrator.journal_database import JournalDatabase

_VERSION = "plt storage 1"
_ALONE = 0x504C54
_TABLES = f"""
do $$ begin
    perform pg_advisory_xact_lock({_ALONE});
    create table if not exists plt_study (
        id integer generated always as identity primary key,
        name text not null unique,
        entries bigint not null default 0,
        epoch bigint not null default 0,
        driver text,
        written timestamptz not null default now()
    );
    create table if not exists plt_journal (
        study integer not null references plt_study on delete cascade,
        number bigint not null,
        entry text not null,
        id uuid not null unique,
        primary key (study, number)
    );
    comment on table plt_study is '{_VERSION}';
end $$
"""
_CREATE = """
with named as (
    insert into plt_study (name, entries) values (%(name)s, %(count)s)
    on conflict (name) do update set entries = excluded.entries, written = now() where plt_study.entries = 0
    returning id
)
insert into plt_journal (study, number, entry, id)
select named.id, line.position - 1, line.entry, line.id
from named, unnest(%(entries)s::text[], %(ids)s::uuid[]) with ordinality as line (entry, id, position)
returning number
"""
_EXAMINE = """
select current_setting('server_version'), coalesce(case when to_regclass('plt_study') is null
    then has_schema_privilege(current_schema(), 'create')
    else has_table_privilege('plt_study', 'insert') and has_table_privilege('plt_study', 'update')
        and has_table_privilege('plt_journal', 'insert') end, false)
"""
_NAMES = """select name from plt_study where entries > 0 order by name collate "C" """
_DRIVER = f"""
select driver from plt_study where name = %(name)s and exists (
    select from pg_locks where locktype = 'advisory' and granted and objsubid = 2
    and database = (select oid from pg_database where datname = current_database())
    and classid = {TABLE}::oid and objid = plt_study.id::oid
)
"""


class DatabaseStore:
    """The journals of one database, with folders in one home."""

    def __init__(self, home: Home, uri: str) -> None:
        """A `ServiceError` when the address cannot be read; nothing is connected yet."""
        self._home, self._address = home, Address.of(uri)
        self._connection = Connection(self._address)
        self._sessions: dict[str, DriverSession] = {}
        self._has_tables = False

    def names(self) -> list[str]:
        """See the protocol."""
        return [name for (name,) in self._ask(_NAMES)]

    def exists(self, name: str) -> bool:
        """See the protocol."""
        return self.standing(name) is not None

    def standing(self, name: str) -> Standing | None:
        """See the protocol."""
        self._home.study(name)
        statement = "select id, entries, written from plt_study where name = %(name)s and entries > 0"
        for number, entries, written in self._ask(statement, name=name):
            return Standing(identity=number, length=entries, written=written)
        return None

    def create(self, name: str, entries: Sequence[Entry]) -> bool:
        """See the protocol."""
        from orchestrator.journal_file import entry_text

        self._home.study(name)
        self._make_tables()
        ids = [uuid4() for _ in entries]
        values = {"name": name, "count": len(entries), "entries": [entry_text(one) for one in entries], "ids": ids}
        if self._connection.run(_CREATE, values):
            return True
        return bool(self._ask("select from plt_journal where id = %(id)s", id=ids[0]))  # by us: the answer was lost

    def journal(self, name: str, on_trouble: Trouble = give_up, *, driving: bool = False) -> "JournalDatabase":
        """See the protocol."""
        from orchestrator.journal_database import JournalDatabase

        session = self._sessions.get(name) if driving else None
        if session is not None:
            return JournalDatabase(session.connection, name, session.study, epoch=session.epoch, on_trouble=on_trouble)
        standing = self.standing(name)
        if standing is None:
            raise KeyError(f"no study {name!r}")
        assert isinstance(standing.identity, int)
        return JournalDatabase(self._connection, name, standing.identity, on_trouble=on_trouble)

    @contextmanager
    def driving(self, name: str) -> Iterator[None]:
        """See the protocol."""
        with folder_lock(self._home, name):
            self._make_tables()
            session = DriverSession(self._address, name)
            try:
                session.begin()
                self._sessions[name] = session
                yield
            finally:
                self._sessions.pop(name, None)
                session.close()

    def driver(self, name: str) -> str | None:
        """See the protocol."""
        if name in self._sessions:
            return process_name()
        holder = folder_holder(self._home, name)
        if holder is not None:
            return holder
        for (driver,) in self._ask(_DRIVER, name=name):
            return str(driver or "unknown")
        return None

    def place(self, name: str) -> str:
        """See the protocol."""
        return f"study {name} in {self._address.shown}"

    def examine(self) -> str:
        """See the protocol."""
        ((version, may_write),) = self._connection.run(_EXAMINE)
        if not may_write:
            raise ServiceError(f"{self._address.shown} answers, and this user may not write there; {ALLOW}")
        return f"{len(self.names())} in {self._address.shown}, which may be written to: PostgreSQL {version}"

    def removal(self, name: str) -> str:
        """See the protocol."""
        return f"delete it from the database (delete from plt_study where name = '{name}')"

    def _ask(self, statement: str, **values: Any) -> Sequence[tuple[Any, ...]]:
        """Rows of a question; none while there are no tables."""
        if not self._has_tables:
            made = self._connection.run("select obj_description(to_regclass('plt_study'), 'pg_class')")[0][0]
            if made is None:
                return []
            self._require_version(made)
        return self._connection.run(statement, values)

    def _make_tables(self) -> None:
        self._ask("select")
        if not self._has_tables:
            self._connection.run(_TABLES)
            self._has_tables = True

    def _require_version(self, made: str) -> None:
        if made != _VERSION:
            raise ServiceError(
                f"{self._address.shown} is a {made!r}, and this is for {_VERSION!r}; install the other one"
            )
        self._has_tables = True
