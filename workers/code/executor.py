"""Runs programs that a model wrote, each in a fresh, restricted process, and says whether its tests passed.

**Guards against** what a program does by mistake or out of mischief: it never ends, forks, allocates or prints without
end, fills the disk, deletes or reads files, reads our environment or our processes, kills them, or uses the network. It
runs as `python -I`, as a user without rights, in its own user, mount, PID, network and IPC namespaces, and sees a
read-only interpreter and an empty folder; `workers.code.jail` says how. In total it can hold about `processes * memory`
of memory and `disk` of files, and `processes * files * file` in nameless files.

**Does not guard against** an attack on the kernel, through its system calls (there is no system call filter), on the
CPU (side channels), or a program that forges its own verdict: the tests run in the program's own process, so one that
looks for the way in which they report success can imitate it. Leaving early is no success.

Where a machine cannot isolate (not Linux, namespaces forbidden as in most containers), `IsolationError` is raised;
nothing is ever run unrestricted.
"""

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Ending = Literal["passed", "failed", "timeout", "output"]
_MIB = 2**20


class IsolationError(RuntimeError):
    """This machine cannot run a program apart from everything else."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one program may use; sizes are bytes."""

    seconds: float = 10.0
    """Of wall time, with the start of the interpreter."""
    memory: int = 512 * _MIB
    """Address space of each process."""
    processes: int = 8
    """Processes and threads at a time."""
    disk: int = 32 * _MIB
    """Of its working folder, which is in memory."""
    file: int = 8 * _MIB
    """Of one file."""
    files: int = 32
    """Open at a time, in each process."""
    output: int = 64 * 1024
    """Printed, after which it is ended."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a program ended."""

    ending: Ending
    """`passed` when it ran to the end of its tests."""
    output: str
    """What it printed, both streams, cut at the limit."""
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether its tests passed."""
        return self.ending == "passed"


def run_program(program: str, limits: Limits | None = None) -> Execution:
    """Run a program, which passes when it comes to its end without an exception.

    Raises an `IsolationError` where that cannot be done apart from everything else.
    """
    if sys.platform != "linux":
        raise IsolationError(f"programs are run apart from others on Linux only, and this is {sys.platform}")
    limits = limits or Limits()
    token = secrets.token_hex(16)
    ending = f"\n\nimport os as _os, sys as _sys\n_os.write(int(_sys.argv[1]), b{token!r})\n"
    started = time.monotonic()
    with _Jail((program + ending).encode(), limits) as jail:
        cause = jail.wait(started + limits.seconds)
    if "error" in jail.status:
        raise IsolationError(
            f"programs cannot be run apart from others here ({jail.status['error']}); use a Linux machine that allows "
            "user namespaces, outside of a container"
        )
    passed = cause is None and jail.verdict == token.encode() and jail.status.get("exit") == 0
    return Execution(
        ending=cause or ("passed" if passed else "failed"),
        output=jail.output.decode(errors="replace"),
        seconds=time.monotonic() - started,
    )


class _Jail:
    """The processes around one program, and the pipes that come out."""

    def __init__(self, program: bytes, limits: Limits) -> None:
        self._limits = limits
        self._status, status = os.pipe()
        self._verdict, verdict = os.pipe()
        plain: Mapping[str, int] = {
            "memory": limits.memory,
            "cpu": int(limits.seconds) + 1,
            "file": limits.file,
            "files": limits.files,
            "processes": limits.processes,
            "disk": limits.disk,
        }
        script = str(Path(__file__).with_name("jail.py"))
        python = getattr(sys, "_base_executable", sys.executable)
        self._process = subprocess.Popen(
            [python, "-I", "-S", script, json.dumps(plain), str(status), str(verdict), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(status, verdict),
            start_new_session=True,
            env={},
            cwd="/",
        )
        os.close(status)
        os.close(verdict)
        self._program = program
        self._read: dict[str, bytes] = {"output": b"", "status": b"", "verdict": b""}

    def __enter__(self) -> "_Jail":
        return self

    def __exit__(self, *_: object) -> None:
        """End everything inside: the kernel kills a PID namespace with its first process."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        for pipe in (self._status, self._verdict):
            os.close(pipe)

    @property
    def output(self) -> bytes:
        """What the program printed, cut at the limit."""
        return self._read["output"][: self._limits.output]

    @property
    def verdict(self) -> bytes:
        """What came out of the pipe that says success."""
        return self._read["verdict"]

    @property
    def status(self) -> dict[str, object]:
        """What the jail said: the program's exit code, or why nothing could be run."""
        lines = self._read["status"].splitlines()
        found: dict[str, object] = json.loads(lines[0]) if lines else {}
        return found

    def wait(self, deadline: float) -> Literal["timeout", "output"] | None:
        """Read until the program has ended, or say which limit it broke."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._program)
        self._process.stdin.close()
        self._process.stdin = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout.fileno(), selectors.EVENT_READ, "output")
            selector.register(self._status, selectors.EVENT_READ, "status")
            selector.register(self._verdict, selectors.EVENT_READ, "verdict")
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    return "timeout"
                for key, _ in ready:
                    if not self._take(key.fd, key.data):
                        selector.unregister(key.fd)
                if len(self._read["output"]) > self._limits.output:
                    return "output"
        return None

    def _take(self, pipe: int, name: str) -> bool:
        """Read what is there, as far as it matters; whether there may be more."""
        read = os.read(pipe, 2**16)
        self._read[name] = (self._read[name] + read)[: self._limits.output + 1]
        return bool(read)
