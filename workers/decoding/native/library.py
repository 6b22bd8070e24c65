"""Compiles `step.cpp` for this machine, once, and loads it.

The library is kept in `$XDG_CACHE_HOME/plt-orchestrator` (default `~/.cache/plt-orchestrator`), which only its owner
may write, under a name that is the hash of the source, the compiler, its flags and what they mean on this processor:
machines that share a home folder never share a library that one of them cannot run. `CXX` names another compiler than
`c++`. What a process found, a library or the reason why there is none, it finds once.
"""

import ctypes
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("step.cpp")
HEADERS = ("vector.h", "tiles.h", "product.h", "attention.h")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-Wno-psabi", "-fPIC", "-shared")
COMPILE_SECONDS = 300
"""A compiler that takes longer is given up."""


class NativeUnavailableError(Exception):
    """Why there are no compiled decode steps here, in one line."""


def library(extra_flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The loaded library, compiled if this machine has none yet (a few seconds).

    Raises:
        NativeUnavailableError: No compiler, or one that cannot compile it.
    """
    found = attempt(extra_flags)
    if isinstance(found, NativeUnavailableError):
        raise NativeUnavailableError(str(found))
    return found


@cache
def attempt(extra_flags: tuple[str, ...]) -> ctypes.CDLL | NativeUnavailableError:
    """The library or why there is none; whoever asks again is not made to wait for the same compiler again."""
    try:
        command = [*_compiler(), *FLAGS, *extra_flags]
        key = hashlib.sha256(b"\0".join((*_sources(), _meaning(command)))).hexdigest()[:24]
        path = _folder() / f"step-{key}.so"
        if not path.exists():
            _compile(command, path)
        return _declared(path)
    except NativeUnavailableError as error:
        return error
    except subprocess.TimeoutExpired as error:
        return NativeUnavailableError(f"{error.cmd[0]} took more than {error.timeout} s; name another compiler in CXX")
    except OSError as error:
        return NativeUnavailableError(f"no compiled code could be made or kept: {error}; set XDG_CACHE_HOME or CXX")


@cache
def engine() -> str:
    """What takes decode steps on this CPU: compiled code, with its version and instructions, or PyTorch's operators."""
    try:
        instructions = ("vectors", "bfloat16 pairs", "AMX tiles")[library().plt_instructions()]
    except NativeUnavailableError:
        return "torch"
    return f"compiled {hashlib.sha256(b''.join(_sources())).hexdigest()[:8]}, {instructions}"


def read_memory(numbers: Tensor, threads: int) -> None:
    """Read a tensor on the CPU once, as decode steps read weights; without compiled code PyTorch sums it."""
    try:
        library().plt_read(threads, numbers.data_ptr(), numbers.numel() * numbers.element_size())
    except NativeUnavailableError:
        numbers.sum().item()


def thread_count() -> int:
    """How many threads compiled code may use: PyTorch's number, but one in a forked child.

    GNU's OpenMP loses its threads in a fork and would wait for them for ever.
    """
    return 1 if _forked else torch.get_num_threads()


_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


def _sources() -> list[bytes]:
    return [SOURCE.with_name(name).read_bytes() for name in (SOURCE.name, *HEADERS)]


def _compiler() -> list[str]:
    named = os.environ.get("CXX", "c++")
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise NativeUnavailableError(f"CXX is {named!r}: {error}; name a C++ compiler in it, or unset it") from error
    if not words or shutil.which(words[0]) is None:
        raise NativeUnavailableError(f"there is no C++ compiler {' '.join(words)!r}; install g++, or name one in CXX")
    return words


def _meaning(command: list[str]) -> bytes:
    """What the flags mean to the compiler on this processor: its version, and the instructions that it may use."""
    asked = subprocess.run(
        [*command, "-dM", "-E", "-x", "c++", os.devnull],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=COMPILE_SECONDS,
    )
    return asked.stdout + shlex.join(command).encode()


def _folder() -> Path:
    """The folder itself, not a link to it, which could be turned to another one after it was looked at."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(root) if root else Path.home() / ".cache") / "plt-orchestrator"
    except RuntimeError as error:
        raise NativeUnavailableError("there is no home folder to keep compiled code in; set XDG_CACHE_HOME") from error
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NativeUnavailableError(
            f"cannot make {folder} for compiled code: {error.strerror}; set XDG_CACHE_HOME"
        ) from error
    folder = folder.resolve(strict=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise NativeUnavailableError(
            f"{folder} can be written by others, so code in it is not trusted; chmod 700 it, or set XDG_CACHE_HOME"
        )
    for above in folder.parents:  # all may put another folder into one that all may write (unless it is sticky)
        if above.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise NativeUnavailableError(
                f"{above} can be written by all, so {folder.name} in it is not trusted; set XDG_CACHE_HOME"
            )
    return folder


def _compile(command: list[str], path: Path) -> None:
    """Written aside and renamed: who is killed, or compiles at the same time, leaves no half library."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="compiling-") as aside:
        made = Path(aside) / path.name
        done = subprocess.run(
            [*command, str(SOURCE), "-o", str(made)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMPILE_SECONDS,
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise NativeUnavailableError(f"{command[0]} cannot compile {SOURCE.name}: {said[0]}")
        made.chmod(0o700)  # whatever the umask
        made.replace(path)


def _declared(path: Path) -> ctypes.CDLL:
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeUnavailableError(f"cannot load {path}: {error}; delete it to have it compiled again") from error
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    for name, arguments, result in (
        ("plt_takes_head_dim", [number], number),
        ("plt_instructions", [], number),
        ("plt_step_floats", [pointer, number, number], number),
        ("plt_step", [pointer, number, number, pointer, pointer, pointer], number),
        ("plt_read", [number, pointer, number], number),
        ("plt_product_floats", [number] * 3, number),
        ("plt_product", [number] * 5 + [pointer] * 4, None),
    ):
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, result
    return loaded
