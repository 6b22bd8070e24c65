"""Compiling for this machine: kept, owned, and refused in one line where it cannot be."""

import logging
import os
import pwd
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
from workers.decoding.native.library import NativeUnavailableError, attempt, library
from workers.models import LoopedTransformer

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="compiled steps need a C++ compiler")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, for a library that this process has not loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    attempt.cache_clear()
    yield tmp_path / "plt-orchestrator"
    attempt.cache_clear()


def test_it_is_compiled_once_and_only_its_owner_may_write_it(cache: Path) -> None:
    library()
    (made,) = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    before = made.stat().st_mtime_ns
    attempt.cache_clear()
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
    attempt.cache_clear()
    with pytest.raises(NativeUnavailableError, match="delete it to have it compiled again"):
        library()


def test_a_compiler_that_makes_nothing_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "true")
    with pytest.raises(NativeUnavailableError, match=r"no compiled code could be made .* No such file"):
        library()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("named", ["g++ 'half", ""])
def test_a_name_that_is_no_command_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("CXX", named)
    with pytest.raises(NativeUnavailableError, match="C\\+\\+ compiler"):
        library()
    assert not cache.exists()


def test_a_compiler_that_hangs_is_given_up(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.decoding.native.library.COMPILE_SECONDS", 0.2)
    monkeypatch.setenv("CXX", str(program(cache.parent / "slow", "exec sleep 60")))
    with pytest.raises(NativeUnavailableError, match=r"slow took more than 0\.2 s"):
        library()


def test_a_failure_is_remembered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or every decoder, and every pass of a measurement, would wait for the compiler to fail again."""
    calls = cache.parent / "calls"
    monkeypatch.setenv("CXX", str(program(cache.parent / "failing", f"echo called >> {calls}; exit 1")))
    counts = []
    for _ in range(2):
        with pytest.raises(NativeUnavailableError, match="cannot compile"):
            library()
        counts.append(calls.read_text(encoding="utf-8").count("called"))
    assert counts[0] == counts[1] > 0


def test_without_a_home_folder_it_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user whom a container's image does not know."""

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(NativeUnavailableError, match=r"no home folder .*; set XDG_CACHE_HOME"):
        library()
    assert not cache.exists()


def test_a_link_is_followed_before_its_folder_is_looked_at(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = cache.parent / "real", cache.parent / "calls"
    real.mkdir(mode=0o700)
    cache.symlink_to(real)
    monkeypatch.setenv("CXX", str(program(cache.parent / "failing", f'echo "$@" >> {calls}; exit 1')))
    with pytest.raises(NativeUnavailableError, match="cannot compile"):
        library()
    assert f"-o {real.resolve()}/" in calls.read_text(encoding="utf-8")
    attempt.cache_clear()
    real.chmod(0o777)
    with pytest.raises(NativeUnavailableError, match="real can be written by others"):
        library()


@pytest.mark.parametrize(("mode", "said"), [(0o777, "by all"), (0o1777, "cannot compile"), (0o775, "cannot compile")])
def test_a_folder_that_others_may_replace_is_not_trusted(
    cache: Path, monkeypatch: pytest.MonkeyPatch, mode: int, said: str
) -> None:
    monkeypatch.setenv("CXX", "false")
    cache.parent.chmod(mode)
    with pytest.raises(NativeUnavailableError, match=said):
        library()


def test_several_processes_may_compile_at_the_same_time(tmp_path: Path) -> None:
    """By a compiler that is done at once, with a library of before."""
    copy = f'case "$*" in *-dM*) exit;; esac; for last; do :; done; umask 0; cp {library()._name} "$last"'
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": str(program(tmp_path / "copying", copy))}
    command = [sys.executable, "-c", "from workers.decoding.native.library import library; library()"]
    running = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    (made,) = (tmp_path / "plt-orchestrator").iterdir()
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


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


def program(path: Path, script: str) -> Path:
    """A program at `path` that runs a line of shell."""
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o700)
    return path
