"""Compiling for this machine: kept, owned, and refused in one line where it cannot be."""

import logging
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from workers.config import ModelConfig
from workers.decoding import Decoder
from workers.decoding.native.library import NativeUnavailableError, library
from workers.models import LoopedTransformer

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="compiled steps need a C++ compiler")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, for a library that this process has not loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    yield tmp_path / "plt-orchestrator"
    library.cache_clear()


def test_it_is_compiled_once_and_only_its_owner_may_write_it(cache: Path) -> None:
    library()
    (made,) = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    before = made.stat().st_mtime_ns
    library.cache_clear()
    library()
    assert [path.stat().st_mtime_ns for path in cache.iterdir()] == [before]


def test_other_flags_are_another_library(cache: Path) -> None:
    library()
    library(("-DPLT_PLAIN",))
    assert len(list(cache.iterdir())) == 2


def test_code_that_others_may_write_is_not_loaded(cache: Path) -> None:
    cache.mkdir(mode=0o700)
    cache.chmod(0o777)
    with pytest.raises(NativeUnavailableError, match="can be written by others"):
        library()


def test_no_compiler_is_told_with_a_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NativeUnavailableError, match=r"no C\+\+ compiler 'no-such-compiler'; install g\+\+"):
        library()
    assert not cache.exists()


def test_a_compiler_that_fails_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(NativeUnavailableError, match=r"false cannot compile step\.cpp: exit code 1"):
        library()
    assert list(cache.iterdir()) == []


def test_a_broken_library_is_told_with_a_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library()
    (made,) = cache.iterdir()
    other = cache.parent / "other" / cache.name
    other.mkdir(mode=0o700, parents=True)
    (other / made.name).write_bytes(b"no library")
    monkeypatch.setenv("XDG_CACHE_HOME", str(other.parent))
    library.cache_clear()
    with pytest.raises(NativeUnavailableError, match="delete it to have it compiled again"):
        library()


def test_without_a_compiler_decoding_goes_on_and_says_why_once(tmp_path: Path) -> None:
    program = """
import torch
from workers.config import ModelConfig
from workers.decoding import Decoder
from workers.models import LoopedTransformer
sizes = {"vocab_size": 20, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
model = LoopedTransformer(ModelConfig(**sizes, num_attention_heads=2, num_key_value_heads=2))
for _ in range(2):
    decoder = Decoder(model, 1, 4)
    assert torch.allclose(decoder.step(torch.tensor([3])), model(torch.tensor([[3]])).logits[:, 0], atol=1e-5)
print(decoder.engine)
"""
    environment = {**os.environ, "CXX": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "torch\n"
    assert done.stderr.count("decode steps use PyTorch's operators") == 1
    assert "no-such-compiler" in done.stderr


def test_a_model_that_compiled_steps_do_not_take_says_why(caplog: pytest.LogCaptureFixture) -> None:
    sizes = {"vocab_size": 20, "hidden_size": 40, "intermediate_size": 48, "num_hidden_layers": 1}
    config = ModelConfig(**sizes, num_attention_heads=2, num_key_value_heads=2)
    with caplog.at_level(logging.WARNING):
        decoder = Decoder(LoopedTransformer(config, dtype=torch.float32), 1, 4)
    assert decoder.engine == "torch"
    assert "hidden_size is 40; compiled steps take multiples of 16" in caplog.text
