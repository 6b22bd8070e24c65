"""The journal in PostgreSQL under kills, cut lines and several writers: whole entries, each once, whatever happens."""

import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.database import Address, Connection
from orchestrator.database_store import DatabaseStore
from orchestrator.errors import DatabaseError, ServiceError, StudyError
from orchestrator.home import Home
from orchestrator.journal_database import JournalDatabase
from orchestrator.journal_file import JournalFile
from tests.services import Postgres, free_port

ENTRY = {"op_code": 2, "worker_id": "w", "study_id": 0, "user_attr": {"key": "value"}}


@pytest.fixture
def store(database: str, home: Home) -> DatabaseStore:
    made = DatabaseStore(home, database)
    assert made.create("small", [ENTRY])
    return made


def workers(store: DatabaseStore) -> list[str]:
    return [entry["worker_id"] for entry in store.journal("small").read_logs(0)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=4), start=st.integers(0, 4))
def test_it_reads_what_a_file_reads(store: DatabaseStore, tmp_path: Path, values: list[object], start: int) -> None:
    path = tmp_path / "journal"
    path.unlink(missing_ok=True)
    entries = [{**ENTRY, "user_attr": {"key": value}} for value in values]
    JournalFile(path).append_logs(entries)
    journal = store.journal("small")
    before = len(list(journal.read_logs(0)))
    journal.append_logs(entries)
    assert repr(list(journal.read_logs(before + start))) == repr(list(JournalFile(path).read_logs(start)))


def test_many_entries_are_read_in_parts(store: DatabaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.journal_database._MOST", 7)
    journal = store.journal("small")
    for count in (6, 1, 20):
        journal.append_logs([{**ENTRY, "worker_id": str(count)} for _ in range(count)])
        wanted = ["w", *["6"] * 6, *["1"] * (count != 6), *["20"] * (20 if count == 20 else 0)]
        assert workers(store) == wanted
        assert [entry["worker_id"] for entry in journal.read_logs(7)] == wanted[7:]


def test_an_entry_that_is_missing_or_damaged_is_an_error(store: DatabaseStore, database: str) -> None:
    store.journal("small").append_logs([ENTRY, ENTRY])
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update plt_journal set entry = '{]' where number = 1")
        with pytest.raises(ValueError, match="entry 2 cannot be read"):
            workers(store)
        connection.execute("delete from plt_journal where number = 1")
        with pytest.raises(ValueError, match="entry 2 cannot be read"):
            workers(store)


def append_many(home: Home, database: str, name: str, count: int) -> None:
    """Also while the database is away."""
    journal = DatabaseStore(home, database).journal("small", on_trouble=lambda _error: time.sleep(0.02))
    for index in range(count):
        journal.append_logs([{**ENTRY, "worker_id": f"{name}-{index}", "padding": "p" * 5000}])


def start_writers(home: Home, database: str, count: int) -> list[multiprocessing.process.BaseProcess]:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=append_many, args=(home, database, str(each), count)) for each in range(3)]
    for writer in writers:
        writer.start()
    return list(writers)


def test_a_server_that_is_killed_under_its_writers_loses_and_doubles_nothing(
    store: DatabaseStore, home: Home, database: str, postgres: Postgres
) -> None:
    count, kills = 150, 4
    writers = start_writers(home, database, count)
    for kill in range(kills):
        wanted = (kill + 1) * 3 * count // (kills + 2)
        while len(found := workers(store)) < wanted or len({one[0] for one in found}) < 4:  # all of them have begun
            assert any(writer.is_alive() for writer in writers), "they write"
        postgres.kill()
        postgres.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = workers(store)
    assert sorted(found[1:]) == sorted(f"{each}-{index}" for each in range(3) for index in range(count))
    for each in range(3):
        assert [one for one in found if one.startswith(f"{each}-")] == [f"{each}-{index}" for index in range(count)]


class DeafLine:
    """A way to a server that can be cut so that what was said still arrives, and no answer comes back."""

    def __init__(self, server: int) -> None:
        self.deaf, self.port = threading.Event(), free_port()
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(65536):
                if answers and self.deaf.is_set():
                    self.deaf.clear()
                    break
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, sink):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()


@pytest.fixture
def line(postgres: Postgres) -> Iterator[DeafLine]:
    made = DeafLine(postgres.port)
    yield made
    made.close()


def test_an_append_whose_answer_was_lost_is_there_once(
    store: DatabaseStore, home: Home, database: str, line: DeafLine, postgres: Postgres
) -> None:
    far = DatabaseStore(home, database.replace(str(postgres.port), str(line.port)))
    journal = far.journal("small")
    journal.append_logs([{**ENTRY, "worker_id": "heard"}])
    line.deaf.set()
    journal.append_logs([{**ENTRY, "worker_id": "unheard"}])
    assert not line.deaf.is_set(), "an answer was lost"
    journal.append_logs([{**ENTRY, "worker_id": "heard again"}])
    assert workers(store) == ["w", "heard", "unheard", "heard again"]


def test_a_creation_whose_answer_was_lost_is_one(
    store: DatabaseStore, home: Home, database: str, line: DeafLine, postgres: Postgres
) -> None:
    far = DatabaseStore(home, database.replace(str(postgres.port), str(line.port)))
    assert far.names() == ["small"]
    line.deaf.set()
    assert far.create("other", [ENTRY, ENTRY])
    assert not line.deaf.is_set(), "an answer was lost"
    assert not far.create("other", [ENTRY])
    assert len(list(store.journal("other").read_logs(0))) == 2


def cut(database: str) -> None:
    """End every driver's session, as the server does with a client that is cut off."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name like 'plt-driver-%'"
        )


def test_a_driver_that_was_cut_off_goes_on_when_nobody_took_over(store: DatabaseStore, database: str) -> None:
    with store.driving("small"):
        journal = store.journal("small", driving=True)
        journal.append_logs([{**ENTRY, "worker_id": "before"}])
        cut(database)
        journal.append_logs([{**ENTRY, "worker_id": "after"}])
        cut(database)
        assert [entry["worker_id"] for entry in journal.read_logs(1)] == ["before", "after"]


def test_a_driver_that_was_cut_off_writes_nothing_once_another_took_over(
    store: DatabaseStore, database: str, tmp_path: Path
) -> None:
    elsewhere = DatabaseStore(Home(tmp_path / "another host's home"), database)
    with store.driving("small"):
        old = store.journal("small", driving=True)
        old.append_logs([{**ENTRY, "worker_id": "old"}])
        with pytest.raises(StudyError, match=r"small is being driven by .*:"):
            elsewhere.driving("small").__enter__()
        cut(database)
        with elsewhere.driving("small"):
            new = elsewhere.journal("small", driving=True)
            new.append_logs([{**ENTRY, "worker_id": "new"}])
            for _ in range(2):
                with pytest.raises(StudyError, match=r"small was taken over by .*; this one stops"):
                    old.append_logs([{**ENTRY, "worker_id": "late"}])
            with pytest.raises(StudyError, match="taken over"):
                list(old.read_logs(0))
            new.append_logs([{**ENTRY, "worker_id": "new"}])
    assert workers(store) == ["w", "old", "new", "new"]


def test_what_an_old_driver_sent_before_it_was_cut_off_is_refused_when_it_arrives_later(
    store: DatabaseStore, database: str, tmp_path: Path
) -> None:
    """The statement carries the epoch, so it does not matter which session executes it."""
    with store.driving("small"):
        pass
    elsewhere = DatabaseStore(Home(tmp_path / "another host's home"), database)
    connection = Connection(Address.of(database))
    with elsewhere.driving("small"):
        late = JournalDatabase(connection, "small", 1, epoch=1)
        with pytest.raises(StudyError, match="taken over"):
            late.append_logs([ENTRY])
        JournalDatabase(connection, "small", 1, epoch=2).append_logs([ENTRY])
    assert len(workers(store)) == 2


def test_a_database_that_has_forgotten_entries_is_noticed_before_anything_is_written(
    store: DatabaseStore, database: str
) -> None:
    with store.driving("small"):
        journal = store.journal("small", driving=True)
        journal.append_logs([ENTRY, ENTRY])
        assert len(list(journal.read_logs(0))) == 3
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("delete from plt_journal where number > 0")
            connection.execute("update plt_study set entries = 1")
        with pytest.raises(StudyError, match=r"has forgotten 2 entries of study small: .*plt resume small"):
            journal.append_logs([ENTRY])
    assert len(workers(store)) == 1


def test_a_study_that_was_deleted_is_noticed(store: DatabaseStore, database: str) -> None:
    journal = store.journal("small")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("delete from plt_study where name = 'small'")
    with pytest.raises(StudyError, match="study small was deleted from the database"):
        journal.append_logs([ENTRY])
    assert store.names() == []


def test_trouble_is_told_until_it_passes(store: DatabaseStore, postgres: Postgres) -> None:
    told: list[OSError] = []

    def wait(error: OSError) -> None:
        told.append(error)
        if len(told) == 3:
            postgres.start()

    journal = store.journal("small", on_trouble=wait)
    postgres.kill()
    journal.append_logs([{**ENTRY, "worker_id": "in the end"}])
    assert workers(store) == ["w", "in the end"]
    assert [str(error).count("Connection refused") for error in told] == [1, 1, 1]


def test_a_user_who_may_not_write_is_told_so(database: str, postgres: Postgres, home: Home) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("revoke create on schema public from public")
        connection.execute(f"create role reader_{postgres.port} login password 'reads-only'".encode())
    reader = DatabaseStore(
        home, database.replace(f"{Postgres.USER}:{Postgres.PASSWORD}", f"reader_{postgres.port}:reads-only")
    )
    assert reader.names() == []
    with pytest.raises(DatabaseError, match=r"permission denied for schema public\); have its owner grant"):
        reader.create("small", [ENTRY])


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("sqlite:///x.db", "PLT_STORAGE is a sqlite address; use postgresql://USER@HOST/DATABASE"),
        ("folder", "PLT_STORAGE is no address of a database"),
        ("postgresql://user:planted@x@host/db", "write @ and / in a password as %40 and %2F"),
        ("postgresql://user:plan/ted@host/db", "write @ and / in a password as %40 and %2F"),
        ("postgresql://user:planted@host:port/db", "PLT_STORAGE cannot be read"),
        ("postgresql://user:planted@host/db?no_such=1", "PLT_STORAGE cannot be read"),
        ("postgresql://user:%planted@host/db", "PLT_STORAGE cannot be read"),
    ],
)
def test_an_address_that_is_none_is_refused_without_being_repeated(uri: str, words: str) -> None:
    with pytest.raises(ServiceError) as refused:
        Address.of(uri)
    assert words in str(refused.value)
    assert "plan" not in str(refused.value)
    assert "ted" not in str(refused.value)


def test_a_wrong_password_is_told_without_the_user(database: str, home: Home) -> None:
    store = DatabaseStore(home, database.replace(Postgres.PASSWORD, "wrong-one"))
    with pytest.raises(DatabaseError, match=r"password authentication failed .*\*\*\*\); set PGPASSWORD") as refused:
        store.names()
    for secret in (Postgres.USER, "wrong-one"):
        assert secret not in str(refused.value)
