"""What this installation has, can reach, and how fast it is: one check per line, each failure with its remedy."""

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from orchestrator.errors import PltError
from orchestrator.formats import byte_count
from orchestrator.home import Home

_PACKAGES = ("torch", "ray", "optuna", "mlflow", "streamlit", "plotly", "tokenizers", "safetensors")
_LOW_DISK_BYTES = 2 * 1024**3


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    """What was found."""
    remedy: str = ""
    """What to do about it when it is not well, where `detail` does not say it."""


def examine(home: Home) -> list[Check]:
    """Every check, in order; the home folder and its MLflow lock are made if missing."""
    steps: list[Callable[[Home], Check]] = [
        _python,
        _packages,
        _machine,
        _folder,
        _disk,
        _studies,
        _tracking,
        checkpoints,
        _device,
        _decoding,
        _bandwidth,
    ]
    return [step(home) for step in steps]


def _python(home: Home) -> Check:
    del home
    return Check(
        name="python",
        ok=sys.version_info >= (3, 11),
        detail=f"{platform.python_version()} at {sys.executable}",
        remedy="use Python 3.11 or newer",
    )


def _packages(home: Home) -> Check:
    del home
    found, missing = [], []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    detail = ", ".join(found) + (f"; missing: {', '.join(missing)}" if missing else "")
    return Check(name="packages", ok=not missing, detail=detail, remedy="make setup")


def _machine(home: Home) -> Check:
    del home
    memory = psutil.virtual_memory()
    return Check(
        name="machine",
        ok=True,
        detail=f"{os.cpu_count()} cores, {byte_count(memory.available)} of {byte_count(memory.total)} memory free",
    )


def _folder(home: Home) -> Check:
    try:
        home.create()
    except PltError as error:
        return Check(name="PLT_HOME", ok=False, detail=str(error), remedy="set PLT_HOME to a folder of yours")
    return Check(name="PLT_HOME", ok=True, detail=f"{home.root} can be written to")


def _disk(home: Home) -> Check:
    place = next(path for path in (home.root, *home.root.parents) if path.exists())
    free = shutil.disk_usage(place).free
    return Check(
        name="disk",
        ok=free >= _LOW_DISK_BYTES,
        detail=f"{byte_count(free)} free at {place}",
        remedy=f"free some space: at least {byte_count(_LOW_DISK_BYTES)} is sensible",
    )


def _studies(home: Home) -> Check:
    from orchestrator.journal_store import journals

    try:
        return Check(name="studies", ok=True, detail=journals(home).examine())
    except PltError as error:
        return Check(name="studies", ok=False, detail=str(error))


def _tracking(home: Home) -> Check:
    from orchestrator.tracking.reader import Reader
    from orchestrator.tracking.sign_in import refuse_sign_in

    if not home.root.exists():
        return Check(name="MLflow", ok=False, detail="no home folder to keep it in", remedy="see PLT_HOME")
    try:
        refuse_sign_in(home, "doctor")
    except PltError as error:
        return Check(name="MLflow", ok=False, detail=str(error))
    problem = Reader(home).tracking_problem("doctor")
    return Check(name="MLflow", ok=problem is None, detail=problem or "answers")


def checkpoints(home: Home) -> Check:
    """Whether the store for checkpoints, if one is named, takes something, gives it back and deletes it."""
    from orchestrator.checkpoint_copies import require_usable

    try:
        address = require_usable(home)
    except PltError as error:
        return Check(name="checkpoints", ok=False, detail=str(error))
    where = f"{address} takes, gives back and deletes them" if address else "in PLT_HOME only"
    return Check(name="checkpoints", ok=True, detail=where)


def _device(home: Home) -> Check:
    del home
    from workers.evaluation.hardware import hardware

    facts = ", ".join(f"{name} {value}" for name, value in hardware().items())
    return Check(name="device", ok=True, detail=facts)


def _decoding(home: Home) -> Check:
    del home
    from workers.decoding.native.library import NativeUnavailableError, engine, library

    try:
        library()
    except NativeUnavailableError as reason:
        return Check(name="decode steps", ok=True, detail=f"PyTorch's operators, which are slower: {reason}")
    return Check(name="decode steps", ok=True, detail=engine())


def _bandwidth(home: Home) -> Check:
    del home
    from workers.evaluation.hardware import read_bandwidth

    return Check(
        name="memory", ok=True, detail=f"reads {read_bandwidth() / 1e9:.1f} GB/s: the floor under every decode step"
    )
