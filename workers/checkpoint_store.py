"""Checkpoint folders in a store that every machine reaches, for clusters whose machines share no disk.

    store = CheckpointStore("s3://bucket/prefix")        any address that fsspec knows: s3, file, memory, sftp, ...
    store.put(folder, "attempt-1/state/step-000000012")
    store.fetch("attempt-1/state/step-000000012", folder)

A folder's files are written first and `whole.json`, with the size and SHA-256 of each, last. Whoever fetches believes
nothing else: a set that is half written, half deleted or damaged is refused. Names are plain words between slashes, in
what is asked for and in what a store answers. Keys and passwords come from the environment alone (for S3 the variables
of AWS, the address of another S3-compatible store among them: `AWS_ENDPOINT_URL`), so an address that has any is
refused. What goes wrong is a `StoreError` of one line.
"""

import errno
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

VARIABLE = "PLT_CHECKPOINTS"
"""Where a person says which store to use."""
FORMAT = "plt-stored/1"
_WHOLE = "whole.json"
_MOST_BYTES = 2**20
"""Of `whole.json`: a checkpoint has a handful of files."""
_ADDRESS = re.compile(r"([a-z0-9][a-z0-9+.-]*)://([^?#@\s]+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_PLAIN = re.compile(r"//[^/@\s]+@")
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    # s3fs itself tries five times, each waiting at most five seconds for an answer
    "s3": {"config_kwargs": {"retries": {"total_max_attempts": 1}}},
    "s3a": {"config_kwargs": {"retries": {"total_max_attempts": 1}}},
    "file": {"auto_mkdir": True},
    "local": {"auto_mkdir": True},
}


class StoreError(Exception):
    """The store cannot be used, or has no whole set of that name; one line."""


class NotWholeError(StoreError):
    """There is no such set, or only a part of it, or a damaged one."""


class CheckpointStore:
    """The folders below one address. Making one reaches nothing."""

    def __init__(self, address: str) -> None:
        """A `StoreError` refuses an address that fsspec does not know or that has secrets in it."""
        self.address = address.rstrip("/")
        refuse_address(self.address)

    def put(self, folder: Path, name: str) -> None:
        """Store a folder of files, replacing what is there under this name."""
        with self._reached():
            place = self._place(name)
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            if not files:
                raise StoreError(f"{folder} has no files")
            whole = {path.relative_to(folder).as_posix(): _described(path) for path in files}
            for path in whole:
                self._fs.put_file(str(folder / path), f"{place}/{path}")
            text = json.dumps({"format": FORMAT, "files": whole}, indent=1)
            self._fs.pipe_file(f"{place}/{_WHOLE}", text.encode())

    def fetch(self, name: str, folder: Path) -> None:
        """Have a stored set at `folder`, whole; one that another process has put there meanwhile is left.

        A `NotWholeError` says that there is none.
        """
        with self._reached():
            place = self._place(name)
            folder.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
            try:
                for path, expected in self._whole(place, name).items():
                    self._fetch_file(f"{place}/{path}", aside / path, expected)
                _rename(aside, folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)

    def names(self, name: str) -> list[str]:
        """The folders directly below one, whole or not, in alphabetical order."""
        with self._reached():
            try:
                entries = self._fs.ls(self._place(name), detail=True)
            except FileNotFoundError:
                return []
            found = {each["name"].rstrip("/").rpartition("/")[2] for each in entries if each["type"] == "directory"}
            return sorted(each for each in found if _NAME.fullmatch(each))

    def holders(self, kind: str) -> set[str]:
        """Which folders hold, two levels below, one called `kind`: `3` for `3/attempt-1/state/...`."""
        with self._reached():
            try:
                files = self._fs.find(self._reach[1])
            except FileNotFoundError:
                return set()
            parts = [path.removeprefix(self._reach[1]).strip("/").split("/") for path in files]
            return {part[0] for part in parts if len(part) > 3 and part[2] == kind}

    def remove(self, name: str) -> None:
        """Delete everything below a name; nothing there is as good."""
        with self._reached():
            try:
                self._fs.rm(self._place(name), recursive=True)
            except FileNotFoundError:
                return

    def probe(self, name: str) -> None:
        """Write something under a name, read it back and delete it; a `StoreError` when that cannot be done."""
        with tempfile.TemporaryDirectory(prefix="plt-probe-") as folder:
            written, read = Path(folder) / "written", Path(folder) / "read"
            written.mkdir()
            (written / "probe.txt").write_text(name, encoding="utf-8")
            self.put(written, name)
            self.fetch(name, read)
            self.remove(name)

    @cached_property
    def _reach(self) -> tuple[Any, str]:
        """The file system, and the path in it that the address stands for."""
        from fsspec.core import url_to_fs

        options = {"skip_instance_cache": True, "use_listings_cache": False, **_OPTIONS.get(self._protocol, {})}
        fs, root = url_to_fs(self.address, **options)
        return fs, root.rstrip("/")

    @property
    def _fs(self) -> Any:
        return self._reach[0]

    @property
    def _protocol(self) -> str:
        return self.address.partition("://")[0]

    def _place(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise StoreError(f"{name!r} is no name of a stored folder")
        return f"{self._reach[1]}/{name}"

    def _whole(self, place: str, name: str) -> dict[str, tuple[int, str]]:
        """What a set consists of: size and SHA-256 by path."""
        try:
            said = json.loads(self._fs.cat_file(f"{place}/{_WHOLE}", start=0, end=_MOST_BYTES))
            files = {str(path): (int(each["bytes"]), str(each["sha256"])) for path, each in said["files"].items()}
            known = said["format"] == FORMAT and all(_NAME.fullmatch(path) for path in files)
        except FileNotFoundError as error:
            raise NotWholeError(f"{self.address}/{name} is not whole: it has no {_WHOLE}") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise NotWholeError(f"{self.address}/{name}/{_WHOLE} is damaged") from error
        if not known or not files:
            raise NotWholeError(f"{self.address}/{name}/{_WHOLE} is damaged, or of another format than {FORMAT}")
        return files

    def _fetch_file(self, place: str, path: Path, expected: tuple[int, str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._fs.get_file(place, str(path))
        except FileNotFoundError as error:
            raise NotWholeError(f"{place} is missing") from error
        got = _described(path)
        if (got["bytes"], got["sha256"]) != expected:
            raise NotWholeError(f"{place} is damaged: it has {got['bytes']} bytes, or others, instead of {expected[0]}")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Every implementation raises errors of its own: all of them become a `StoreError`."""
        try:
            yield
        except StoreError:
            raise
        except ImportError as error:
            raise StoreError(
                f"{VARIABLE} is {self.address}, and no package here reads {self._protocol}://: {_line(error)}; "
                "for s3:// pip install 'plt-orchestrator[s3]'"
            ) from error
        except Exception as error:
            raise StoreError(f"{self.address} cannot be used: {_line(error)}") from error


def refuse_address(address: str) -> None:
    """Raise a `StoreError` for what is no address of a store, or has a user or a key in it."""
    import fsspec

    match = _ADDRESS.fullmatch(address)
    if match is None or "::" in address:
        shown = f"{address.partition('://')[0]}://***" if re.search("[?#@]", address) else address
        raise StoreError(
            f"{VARIABLE} is {shown!r}; give PROTOCOL://PLACE without user, key or options, such as s3://bucket/prefix "
            "or file:///shared/folder: keys come from variables such as AWS_ACCESS_KEY_ID"
        )
    protocol, place = match.groups()
    if protocol not in fsspec.available_protocols():
        raise StoreError(f"{VARIABLE} is {address!r}, and fsspec knows no {protocol}://; use s3:// or file://")
    if protocol in ("file", "local") and not place.startswith("/"):
        raise StoreError(f"{VARIABLE} is {address!r}; a folder needs its whole path: file:///shared/folder")
    if ".." in place.split("/"):
        raise StoreError(f"{VARIABLE} is {address!r}; leave out the '..'")


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _rename(aside: Path, folder: Path) -> None:
    try:
        aside.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _line(error: BaseException) -> str:
    """An error in one line, without what an address may carry."""
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return _PLAIN.sub("//***@", f"{type(error).__name__}: {said}")
