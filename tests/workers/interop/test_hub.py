"""Checkpoints by their name on the hub, from the library's own cache, which needs no network."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from workers.interop.errors import InteropError
from workers.interop.hub import fetch
from workers.interop.reading import import_model

Make = Callable[..., Any]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def test_a_model_of_the_hub(cache: Path, made: Make, tmp_path: Path) -> None:
    """Laid out as the library does: snapshots of links to blobs."""
    revision = "0123456789abcdef0123456789abcdef01234567"
    repository = cache / "models--someone--loops"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    shutil.copytree(made("iquest-loop").folder, repository / "blobs")
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    for path in (repository / "blobs").iterdir():
        (snapshot / path.name).symlink_to(path)
    imported = import_model(fetch("someone/loops"), tmp_path / "imported")
    assert json.loads((imported.folder / "config.json").read_text())["num_loops"] == 2


@pytest.mark.usefixtures("cache")
def test_a_model_that_cannot_be_had() -> None:
    with pytest.raises(InteropError, match="hf:someone/absent cannot be fetched: ") as caught:
        fetch("someone/absent")
    assert "\n" not in str(caught.value)
    for name in ("../../etc", "loops", "a/b/c", "a/../b", "", "a b/c"):
        with pytest.raises(InteropError, match="is no name of the hub; write hf:OWNER/MODEL"):
            fetch(name)
