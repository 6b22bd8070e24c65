"""A process of a driver's own, for work that would hold up the driver's: asked and answered in pickles.

The messages travel over the process's standard input and output. It has a lower priority than training, does not see
Ctrl-C, which is the driver's, and ends by itself when the driver is gone, however it went: as soon as it has finished
what it is doing.
"""

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from subprocess import PIPE, Popen
from typing import IO, Any

_NICENESS = 10

Reply = Callable[[object], None]
Answers = Callable[[Any, Reply], None]
"""Answers one message, by as many replies as its protocol says."""


class ChildDiedError(Exception):
    """The process no longer answers; it has ended, with an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the process died (exit code {code}; -9 is most often the machine's memory)")
        self.code = code


class ChildProcess:
    """One process, from its start to its end; belongs to one thread, except for `kill` and `let_go`."""

    def __init__(self, module: str, greeting: object, environment: Mapping[str, str] | None = None) -> None:
        """Run the `main` of a module, which calls `serve`, and send it a first message, which has no answer."""
        self._process = Popen(
            [sys.executable, "-c", f"from {module} import main; main()"],
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self.send(greeting)

    def send(self, message: object) -> None:
        """Send a message; that nobody reads it shows with the next `receive`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            _send(self._process.stdin, message)

    def receive(self) -> Any:
        """The next message from the process, however long it takes. Raises a `ChildDiedError` when none will come."""
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            self.kill()
            with suppress(BrokenPipeError), self._process:
                self._process.wait()
            raise ChildDiedError(self._process.returncode) from None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()

    def let_go(self) -> None:
        """Say nothing more; the process ends when it has finished what it is doing, and nobody waits for that."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


def serve(begin: Callable[[Any], Answers]) -> None:
    """What the process runs: `begin` gets the first message and gives what answers each further one."""
    os.nice(_NICENESS)
    received, sent = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not an answer
    with suppress(EOFError, BrokenPipeError):  # the driver is gone
        answers = begin(pickle.load(received))
        while True:
            answers(pickle.load(received), partial(_send, sent))


def _send(stream: IO[bytes], message: object) -> None:
    pickle.dump(message, stream)
    stream.flush()
