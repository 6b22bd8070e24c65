"""A proposer in a process of its own, for a sampler that computes for seconds in torch.

In the driver's process it would hold up the control loop, fight over threads with itself (one OpenMP thread takes a
third of the processor time that many take) and abort the interpreter when the study ends in the middle of an ask. Its
process is killed by `close`; one that died is started again once per ask.

Protocol (`orchestrator.child_process`): first the plain study file; then for every `_Ask`, which carries only what
changed, one `_Answer`.
"""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.child_process import Answers, ChildDiedError, ChildProcess, Reply, serve
from orchestrator.configuration import resolve
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec


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
        self._child: ChildProcess | None = None
        self._known: Sequence[Evaluation] = ()
        """What the process knows."""
        self._closed = False

    def propose(self, known: Sequence[Evaluation]) -> Proposal | None:
        """As `Proposer.propose`. Raises a `RuntimeError` when the process fails or cannot be kept alive."""
        code = 0
        for _ in range(2):
            try:
                return self._answered(self._asked(known))
            except ChildDiedError as died:
                code, self._child, self._known = died.code, None, ()
            if self._closed:
                return None
        raise RuntimeError(
            f"the process of sampler {self.sampler} died twice in a row (exit code {code}; -9 is most often the "
            "machine's memory); continue the study where there is more, or with another sampler"
        )

    def close(self) -> None:
        """Kill the process, from any thread; an ask that is under way ends without a proposal."""
        self._closed = True
        if self._child is not None:
            self._child.kill()

    def _asked(self, known: Sequence[Evaluation]) -> _Answer:
        child = self._child or self._started()
        changed = {
            position: evaluation
            for position, evaluation in enumerate(known)
            if position >= len(self._known) or self._known[position] is not evaluation
        }
        child.send(_Ask(length=len(known), changed=changed))
        self._known = known
        answer: _Answer = child.receive()
        return answer

    def _answered(self, answer: _Answer) -> Proposal | None:
        if answer.error is not None:
            raise RuntimeError(f"sampler {self.sampler} failed in its process:\n{answer.error}")
        if answer.found is None:
            return None
        params, sampler, state = answer.found
        return Proposal(configuration=resolve(self._spec, params), sampler=sampler, sampler_state=state)

    def _started(self) -> ChildProcess:
        self._child = ChildProcess(__name__, self._spec.to_plain(), {"OMP_NUM_THREADS": "1"})
        if self._closed:
            self._child.kill()
        return self._child


def main() -> None:
    """What the process runs."""
    serve(_proposing)


def _proposing(plain: Mapping[str, Any]) -> Answers:
    spec = StudySpec.from_plain(plain)
    proposer = Proposer(spec, SearchSpace(spec))
    known: list[Evaluation] = []

    def answers(ask: _Ask, reply: Reply) -> None:
        known[:] = [ask.changed.get(position) or known[position] for position in range(ask.length)]
        reply(_answer(proposer, known))

    return answers


def _answer(proposer: Proposer, known: Sequence[Evaluation]) -> _Answer:
    try:
        found = proposer.propose(known)
    except Exception:
        return _Answer(error=traceback.format_exc())
    if found is None:
        return _Answer()
    return _Answer(found=(found.configuration.params, found.sampler, found.sampler_state))
