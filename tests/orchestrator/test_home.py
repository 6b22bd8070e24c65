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
