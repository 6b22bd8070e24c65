"""What travels to a cluster with a submitted study: this project's code and the study file, nothing else.

No `.git`, no data, no checkpoints, no environment: only the packages as they are imported here, changes that were
not committed included.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

from orchestrator.errors import ServiceError

PACKAGES = ("orchestrator", "workers", "dashboard")
STUDY_FILE = "study.yaml"
VERSIONS = "PLT_SUBMITTED_WITH"
"""Variable that tells a command on the cluster which versions the study was submitted with; `orchestrator.main` reads
it."""
_DISTRIBUTION = "plt-orchestrator"
_MOST_BYTES = 50 * 2**20
"""The Jobs API takes 100 MiB."""
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


@contextmanager
def shipment(study: Path | None = None) -> Iterator[Path]:
    """A folder with the code, and with the study file as `study.yaml`, that is gone afterwards.

    A `ServiceError` names the largest files when it is too large to be sent.
    """
    with TemporaryDirectory(prefix="plt-shipment-") as folder:
        packed = Path(folder)
        for package in PACKAGES:
            shutil.copytree(_source(package), packed / package, ignore=_LEFT_OUT)
        if study is not None:
            shutil.copyfile(study, packed / STUDY_FILE)
        _refuse_too_large(packed)
        yield packed


def _source(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ServiceError(f"the package {package} is not installed here; install the whole project")
    return Path(spec.origin).parent


def _refuse_too_large(folder: Path) -> None:
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    total = sum(sizes.values())
    if total > _MOST_BYTES:
        largest = sorted(sizes, key=lambda path: -sizes[path])[:5]
        named = ", ".join(f"{path.relative_to(folder)} ({sizes[path] / 2**20:.0f} MiB)" for path in largest)
        raise ServiceError(
            f"the code to send has {total / 2**20:.0f} MiB, more than {_MOST_BYTES / 2**20:.0f}; the largest files "
            f"are {named}: move data out of the packages"
        )


def versions() -> dict[str, str]:
    """Python's and those of the packages that the project needs, as installed here."""
    return {"python": python_version(), **{name: version(name) for name in _needed()}}


def requirements() -> list[str]:
    """The packages at the versions installed here, as pip takes them."""
    return [f"{name}=={number}" for name, number in versions().items() if name != "python"]


def differences(environment: Mapping[str, str] = os.environ) -> list[str]:
    """How this environment differs from the one that the running command was submitted from, one line per package."""
    wanted: dict[str, str] = json.loads(environment.get(VERSIONS, "{}"))
    return [f"{name} {here} here, {there} there" for name, there in wanted.items() if (here := _version(name)) != there]


def _needed() -> list[str]:
    """Distributions that the project always needs."""
    required = [Requirement(text) for text in requires(_DISTRIBUTION) or ()]
    return [one.name for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]


def _version(name: str) -> str:
    if name == "python":
        return python_version()
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
