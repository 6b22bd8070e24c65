import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from orchestrator.errors import ServiceError, StudyError
from orchestrator.home import Home, write_aside


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://localhost:5000", "http://localhost:5000"),
        ("http://me:hush@host:5000/path", "http://***@host:5000/path"),
        ("postgresql://me:hu%40sh@host/mlflow", "postgresql://***@host/mlflow"),
        ("https://token@host", "https://***@host"),
        ("postgresql://h/db?user=bob&password=hush", "postgresql://h/db?user=bob&password=***"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
    ],
)
def test_a_password_is_never_shown(uri: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert Home(Path("/home")).shown_mlflow_uri == shown


def test_the_environment_says_where_the_home_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLT_HOME", str(tmp_path / "there"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home = Home.from_environment()
    assert not home.root.exists()
    assert home.create().root == tmp_path / "there"
    assert home.mlflow_uri == f"sqlite:///{tmp_path}/there/mlflow.db"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "-a", "a" * 101, "a b", "a\n"])
def test_a_name_never_becomes_another_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="study name"):
        Home(tmp_path).study(name)


def test_a_home_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ServiceError, match="PLT_HOME"):
        Home(tmp_path / "file" / "home").create()


def test_writing_aside_replaces_whole_files_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.json"
    write_aside(path, "old")
    write_aside(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert [child.name for child in path.parent.iterdir()] == ["file.json"]


def write_and_be_killed(path: Path) -> None:
    handle = os.open(path.with_name(f".{path.name}.aside"), os.O_RDWR | os.O_CREAT)
    os.write(handle, b"half of a longer te")
    os.kill(os.getpid(), signal.SIGKILL)


def write_many(path: Path, letter: str) -> None:
    for _ in range(50):
        write_aside(path, letter * 20_000)


def test_what_a_killed_writer_left_is_taken_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    killed = multiprocessing.get_context("fork").Process(target=write_and_be_killed, args=(path,))
    killed.start()
    killed.join()
    write_aside(path, "whole")
    assert path.read_text(encoding="utf-8") == "whole"
    assert [one.name for one in tmp_path.iterdir()] == ["live.json"]


def test_of_writers_at_once_one_wins_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(path, letter)) for letter in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    text = path.read_text(encoding="utf-8")
    assert text in {letter * 20_000 for letter in "abc"}
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
