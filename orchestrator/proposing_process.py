"""A proposer in a process of its own, for a sampler that computes for seconds in torch.

In the driver's process it would hold up the control loop, fight over threads with itself (one OpenMP thread takes a
third of the processor time that many take) and abort the interpreter when the study ends in the middle of an ask. Its
process has a lower priority than training, is killed by `close`, and ends by itself when the driver is gone.

Protocol: pickles over the process's standard input and output. First the plain study file; then for every
`_Ask`, which carries only what changed, one `_Answer`. A process that died is started again once per ask.
"""

import os
import pickle
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import PIPE, Popen
from typing import IO, Any

from orchestrator.configuration import resolve
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

_NICENESS = 10


@dataclass(frozen=True, kw_only=True)
class _Ask:
    length: int
    changed: Mapping[int, Evaluation]
    """By position."""


@dataclass(frozen=True, kw_only=True)
class _Answer:
    found: tuple[Mapping[str, Any], str, Mapping[str, Any]] | None = None
    """Parameters, sampler and its state."""
    error: str | None = None
    """Traceback."""


class ProposingProcess:
    """Proposes what the proposer would; belongs to one thread, except for `close`."""

    def __init__(self, proposer: Proposer) -> None:
        self._spec, self.sampler = proposer.spec, proposer.sampler
        self._process: Popen[bytes] | None = None
        self._known: Sequence[Evaluation] = ()
        """What the process knows."""
        self._closed = False

    def propose(self, known: Sequence[Evaluation]) -> Proposal | None:
        """As `Proposer.propose`. Raises a `RuntimeError` when the process fails or cannot be kept alive."""
        for _ in range(2):
            try:
                return self._answered(self._asked(known))
            except (EOFError, BrokenPipeError, pickle.UnpicklingError):
                code = self._stop()
            if self._closed:
                return None
        raise RuntimeError(
            f"the process of sampler {self.sampler} died twice in a row (exit code {code}; -9 is most often the "
            "machine's memory); continue the study where there is more, or with another sampler"
        )

    def close(self) -> None:
        """Kill the process, from any thread; an ask that is under way ends without a proposal."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _asked(self, known: Sequence[Evaluation]) -> _Answer:
        process = self._process or self._started()
        changed = {
            position: evaluation
            for position, evaluation in enumerate(known)
            if position >= len(self._known) or self._known[position] is not evaluation
        }
        assert process.stdin is not None
        assert process.stdout is not None
        _send(process.stdin, _Ask(length=len(known), changed=changed))
        self._known = known
        answer: _Answer = pickle.load(process.stdout)
        return answer

    def _answered(self, answer: _Answer) -> Proposal | None:
        if answer.error is not None:
            raise RuntimeError(f"sampler {self.sampler} failed in its process:\n{answer.error}")
        if answer.found is None:
            return None
        params, sampler, state = answer.found
        return Proposal(configuration=resolve(self._spec, params), sampler=sampler, sampler_state=state)

    def _started(self) -> Popen[bytes]:
        self._process = Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is the driver's
        )
        if self._closed:
            self._process.kill()
        assert self._process.stdin is not None
        _send(self._process.stdin, self._spec.to_plain())
        return self._process

    def _stop(self) -> int:
        """The exit code of a process that no longer answers."""
        process, self._process, self._known = self._process, None, ()
        assert process is not None
        process.kill()
        with suppress(BrokenPipeError), process:  # what it was not told any more
            process.wait()
        return process.returncode


def main() -> None:
    """What the process runs: answers until its input ends."""
    os.nice(_NICENESS)
    received, sent = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not an answer
    spec = StudySpec.from_plain(pickle.load(received))
    proposer = Proposer(spec, SearchSpace(spec))
    known: list[Evaluation] = []
    with suppress(EOFError, BrokenPipeError):  # the driver is gone
        while True:
            ask: _Ask = pickle.load(received)
            known = [ask.changed.get(position) or known[position] for position in range(ask.length)]
            _send(sent, _answer(proposer, known))


def _answer(proposer: Proposer, known: Sequence[Evaluation]) -> _Answer:
    try:
        found = proposer.propose(known)
    except Exception:
        return _Answer(error=traceback.format_exc())
    if found is None:
        return _Answer()
    return _Answer(found=(found.configuration.params, found.sampler, found.sampler_state))


def _send(stream: IO[bytes], message: object) -> None:
    pickle.dump(message, stream)
    stream.flush()
