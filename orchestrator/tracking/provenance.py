"""Which code, packages and machine the driver runs on, as tags of a run.

The commit is only given when these very files are tracked by the git repository they lie in; an installed package
inside somebody else's checkout must not borrow that checkout's commit.
"""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("plt-orchestrator", "torch", "ray", "optuna", "mlflow")


@cache
def provenance_tags() -> dict[str, str]:
    """`mlflow.source.git.commit` and `plt.git.dirty` where there is a commit, `version.*`, host and platform."""
    tags = {
        "plt.host": platform.node(),
        "plt.platform": platform.platform(),
        "version.python": platform.python_version(),
    }
    for package in _PACKAGES:
        try:
            tags[f"version.{package}"] = version(package)
        except PackageNotFoundError:
            tags[f"version.{package}"] = "not installed"
    return tags | git_tags(Path(__file__).resolve().parent)


def git_tags(folder: Path) -> dict[str, str]:
    """Commit and dirty flag of the checkout whose tracked files include the folder's `__init__.py`, else nothing."""
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {}
    commit, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changes is None:
        return {}
    return {"mlflow.source.git.commit": commit, "plt.git.dirty": str(bool(changes)).lower()}


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, or None when there is no git, no repository, or it says no."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
