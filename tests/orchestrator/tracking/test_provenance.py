"""The commit is git's own, and never somebody else's."""

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestrator.tracking.provenance import git_tags, provenance_tags


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package folder in a checkout where it is committed."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return folder


def test_a_clean_checkout_then_a_dirty_one(package: Path) -> None:
    commit = git(package, "rev-parse", "HEAD")
    assert git_tags(package) == {"mlflow.source.git.commit": commit, "plt.git.dirty": "false"}
    (package / "__init__.py").write_text("changed = True")
    assert git_tags(package) == {"mlflow.source.git.commit": commit, "plt.git.dirty": "true"}


def test_a_package_installed_inside_a_foreign_checkout_has_no_commit(package: Path) -> None:
    installed = package.parent / ".venv" / "ours"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert git_tags(installed) == {}


def test_no_repository_no_commit(tmp_path: Path) -> None:
    assert git_tags(tmp_path) == {}


def test_versions_are_the_installed_ones() -> None:
    tags = provenance_tags()
    assert tags["version.optuna"] == version("optuna")
    assert tags["version.plt-orchestrator"] == version("plt-orchestrator")
