"""What both stores of journals promise: files of a home, and a database."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.driver_lock import driver_lock, living_driver
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.journal_store import JournalStore, journals
from orchestrator.studies import list_studies

ENTRY = {"op_code": 2, "worker_id": "w", "study_id": 0, "user_attr": {"key": "value"}}
DRIVER = """
import sys
from pathlib import Path
from orchestrator.driver_lock import driver_lock
from orchestrator.home import Home
with driver_lock(Home(Path(sys.argv[1])), "small"):
    print("driving", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["file", "database"])
def store(request: pytest.FixtureRequest, home: Home, monkeypatch: pytest.MonkeyPatch) -> JournalStore:
    monkeypatch.delenv("PLT_STORAGE", raising=False)
    if request.param == "database":
        monkeypatch.setenv("PLT_STORAGE", request.getfixturevalue("database"))
    return journals(home)


def test_where_nothing_is_there_is_no_study_and_looking_makes_nothing(store: JournalStore, home: Home) -> None:
    assert store.names() == []
    assert not store.exists("small")
    assert store.standing("small") is None
    assert store.driver("small") is None
    assert not home.root.exists()


def test_a_study_is_made_once(store: JournalStore) -> None:
    assert store.create("small", [ENTRY, ENTRY])
    assert not store.create("small", [ENTRY])
    assert store.create("Large", [ENTRY])
    assert store.create("small.2", [ENTRY])
    assert store.names() == ["Large", "small", "small.2"]
    assert store.exists("small")
    assert list(store.journal("small").read_logs(0)) == [ENTRY, ENTRY]
    assert list(store.journal("small").read_logs(1)) == [ENTRY]


def test_a_study_that_is_driven_and_was_not_made_is_not_there(store: JournalStore) -> None:
    with store.driving("small"):
        assert store.names() == []
        assert not store.exists("small")
        assert store.create("small", [ENTRY])
    assert store.names() == ["small"]


def test_standing_changes_with_every_entry(store: JournalStore) -> None:
    assert store.create("small", [ENTRY])
    before = store.standing("small")
    assert before == store.standing("small")
    store.journal("small").append_logs([ENTRY])
    after = store.standing("small")
    assert before is not None
    assert after is not None
    assert (after.identity, after.length > before.length) == (before.identity, True)
    assert after.written >= before.written


@pytest.mark.parametrize("name", ["", "../small", "a/b", "x" * 101])
def test_a_name_that_is_none_is_refused(store: JournalStore, name: str) -> None:
    for ask in (store.exists, store.standing, store.driver, lambda given: store.create(given, [ENTRY])):
        with pytest.raises(StudyError, match="is no study name"):
            ask(name)
    with pytest.raises(StudyError, match="is no study name"):
        store.driving(name).__enter__()


def start_driver(home: Home) -> "subprocess.Popen[str]":
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(home.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "driving\n"
    return driver


@pytest.mark.parametrize("same_home", [True, False])
def test_one_driver_at_a_time_and_none_after_it_was_killed(
    store: JournalStore, home: Home, tmp_path: Path, same_home: bool
) -> None:
    if not same_home and "PLT_STORAGE" not in os.environ:
        pytest.skip("without a database another home has studies of its own")
    assert store.create("small", [ENTRY])
    here = home if same_home else Home(tmp_path / "of another host")
    driver = start_driver(home)
    try:
        name = f"{socket.gethostname()}:{driver.pid}"
        assert living_driver(here, "small") == name
        with pytest.raises(StudyError, match=f"small is being driven by {name}; wait for it or stop it"):
            driver_lock(here, "small").__enter__()
        with driver_lock(here, "other"):
            assert living_driver(here, "other") == f"{socket.gethostname()}:{os.getpid()}"
        assert list_studies(here) == ["small"]
    finally:
        driver.kill()
        driver.communicate()
    with driver_lock(here, "small"):
        assert living_driver(here, "small") == f"{socket.gethostname()}:{os.getpid()}"
    assert living_driver(here, "small") is None
