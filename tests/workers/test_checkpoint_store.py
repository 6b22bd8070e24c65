"""Which addresses and names a store takes, and that two processes may fetch the same set."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.checkpoint_store import CheckpointStore, NotWholeError, StoreError

REFUSED = [
    "s3",
    "s3://",
    "relative/folder",
    "file://relative",
    "file:///a/../../etc",
    "s3://key:hush-hush@bucket/prefix",
    "s3://key:hush/hush-hush@bucket/prefix",
    "s3://bucket/prefix?secret=hush-hush",
    "s3://bucket/prefix#hush-hush",
    "simplecache::s3://bucket",
    "nonsense://bucket",
    "s3://a bucket",
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_no_address_is_refused_in_one_line_without_its_secrets(address: str) -> None:
    with pytest.raises(StoreError, match="PLT_CHECKPOINTS is") as refused:
        CheckpointStore(address)
    assert "\n" not in str(refused.value)
    assert "hush-hush" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "/", "..", "a/../b", "/a", "a//b", "a/", ".a", "a/.b", "a b", "a\n", "a\\b"])
def test_a_name_never_becomes_another_path(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("text")
    store = CheckpointStore(f"file://{tmp_path}/store")
    for refused in (lambda: store.put(tmp_path / "folder", name), lambda: store.remove(name)):
        with pytest.raises(StoreError, match="no name of a stored folder"):
            refused()
    assert {path.name for path in tmp_path.iterdir()} == {"folder"}


def test_a_set_comes_back_as_it_was_and_nothing_is_left_of_what_was_removed(tmp_path: Path) -> None:
    store, folder = CheckpointStore(f"file://{tmp_path}/store"), tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "one.bin").write_bytes(bytes(range(256)) * 1000)
    (folder / "inner" / "two.json").write_text("{}")
    store.put(folder, "0/attempt-1/state/step-000000001")
    store.fetch("0/attempt-1/state/step-000000001", tmp_path / "back")
    for path in ("one.bin", "inner/two.json"):
        assert (tmp_path / "back" / path).read_bytes() == (folder / path).read_bytes()
    assert store.names("0/attempt-1/state") == ["step-000000001"]
    assert store.holders("state") == {"0"}
    assert store.holders("best") == set()
    store.remove("0/attempt-1")
    assert store.names("0") == []
    with pytest.raises(NotWholeError):
        store.fetch("0/attempt-1/state/step-000000001", tmp_path / "again")
    assert {path.name for path in tmp_path.iterdir()} == {"store", "folder", "back"}


def spoil_marker(folder: Path, change: Callable[[str], str]) -> None:
    marker = folder / "whole.json"
    marker.write_text(change(marker.read_text(encoding="utf-8")), encoding="utf-8")


NOTHING = '{"format": "plt-stored/1", "files": {}}'
DAMAGES: dict[str, Callable[[Path], object]] = {
    "a file is missing": lambda folder: (folder / "file").unlink(),
    "a file is cut": lambda folder: (folder / "file").write_text("store", encoding="utf-8"),
    "a file is other": lambda folder: (folder / "file").write_text("sTored", encoding="utf-8"),
    "the marker is missing": lambda folder: (folder / "whole.json").unlink(),
    "the marker is cut": lambda folder: spoil_marker(folder, lambda text: text[:-2]),
    "the marker names nothing": lambda folder: spoil_marker(
        folder, lambda _: '{"format": "plt-stored/1", "files": {}}'
    ),
    "the marker is a list": lambda folder: spoil_marker(folder, lambda _: "[]"),
    "another format": lambda folder: spoil_marker(folder, lambda text: text.replace("stored/1", "stored/2")),
    "a path leads out": lambda folder: spoil_marker(folder, lambda text: text.replace('"file"', '"../b/file"')),
    "a path is absolute": lambda folder: spoil_marker(folder, lambda text: text.replace('"file"', '"/../b/file"')),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_of_what_is_not_whole_nothing_is_taken(tmp_path: Path, damage: str) -> None:
    """Beside it lies another set, whose file has the same content: a path that leads out would find it."""
    store, folder = CheckpointStore(f"file://{tmp_path}/store"), tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("stored", encoding="utf-8")
    for name in ("a", "b"):
        store.put(folder, name)
    DAMAGES[damage](tmp_path / "store" / "a")
    with pytest.raises(NotWholeError, match="/a"):
        store.fetch("a", tmp_path / "to" / "there")
    assert list((tmp_path / "to").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"store", "folder", "to"}


def test_what_another_process_has_fetched_meanwhile_is_left(tmp_path: Path) -> None:
    store, folder = CheckpointStore(f"file://{tmp_path}/store"), tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("stored")
    store.put(folder, "a")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("whole already, and being read")
    store.fetch("a", tmp_path / "there")
    assert (tmp_path / "there" / "file").read_text() == "whole already, and being read"


def test_an_empty_folder_is_not_stored(tmp_path: Path) -> None:
    """One that somebody deleted while it was to be stored would look whole."""
    store = CheckpointStore(f"file://{tmp_path}/store")
    with pytest.raises(StoreError, match="has no files"):
        store.put(tmp_path / "gone", "a")


def test_a_missing_package_is_named() -> None:
    """With what a worker's own environment may be: no s3fs."""
    program = (
        "import sys; sys.modules['s3fs'] = None\n"
        "from workers.checkpoint_store import CheckpointStore, StoreError\n"
        "try: CheckpointStore('s3://bucket').names('a')\n"
        "except StoreError as error: print(error)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said, torch_too = done.stdout.splitlines()
    assert "pip install 'plt-orchestrator[s3]'" in said
    assert torch_too == "False"
    assert tempfile.gettempdir() not in said
