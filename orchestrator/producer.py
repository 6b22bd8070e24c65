"""A thread that keeps a few proposals of one proposer ready. `orchestrator.ask_ahead` decides what is taken when."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Condition, Thread
from time import monotonic
from typing import Protocol

from orchestrator.proposer import Evaluation, Proposal
from orchestrator.tally import Tally

_FRESH = 0.9
"""A proposal is out of date when it was made knowing less than this part of today's results."""


@dataclass(frozen=True, kw_only=True)
class _Ready:
    proposal: Proposal
    results: int
    """How many results were known when it was made."""


@dataclass(frozen=True, kw_only=True)
class _Task:
    known: Sequence[Evaluation]
    """Queued ones too."""
    results: int
    instead_of: _Ready | None
    """What is out of date; None to make the queue longer."""


class Proposes(Protocol):
    """Who makes the proposals; used from the producer's thread alone, except for `close`."""

    @property
    def sampler(self) -> str:
        """Its name."""

    def propose(self, known: Sequence[Evaluation]) -> Proposal | None:
        """A configuration that is not among the known ones, or None when there seems to be none."""

    def close(self) -> None:
        """Nothing will be asked any more."""


class Producer:
    """Up to `depth` proposals, made in the background; the proposer belongs to this thread from now on.

    Nothing happens before the first `update`. It makes no more than the budget has room for, and rests when there is
    nothing new to propose until something else is known. Replacing what is out of date takes about `depth` asks each
    time that the results grew by a tenth.
    """

    def __init__(self, proposer: Proposes, depth: int, budget: int, *, takes: float = 0.0) -> None:
        """`takes` is how many seconds the first ask is expected to take."""
        self._proposer, self._depth, self._budget = proposer, depth, budget
        self._changed = Condition()
        self._known: Sequence[Evaluation] = ()
        self._tally = Tally()
        self._queue: list[_Ready] = []
        self._nothing_besides = -1
        """Known and queued ones besides which nothing was found."""
        self._began: float | None = None
        """When the ask under way began."""
        self._took = takes
        """Seconds that the last ask took."""
        self._error: Exception | None = None
        self._begun = self._closed = False
        self._thread = Thread(target=self._run, name=f"ask {proposer.sampler}", daemon=True)
        self._thread.start()

    def update(self, known: Sequence[Evaluation]) -> None:
        """Replace what is known; queued proposals that are among it are dropped."""
        with self._changed:
            self._begun = True
            self._follow(known)

    def add(self, evaluation: Evaluation) -> None:
        """One more is known, without a result; what was taken here is known already."""
        with self._changed:
            if evaluation.fingerprint not in self._tally.fingerprints:
                self._follow((*self._known, evaluation))

    def queued(self) -> list[Evaluation]:
        """What is ready, as running."""
        with self._changed:
            return [one.proposal.running() for one in self._queue]

    def take(self, wait: float) -> Proposal | None:
        """The oldest proposal; None when there is none within `wait` seconds. Raises what the proposer raised.

        It does not wait at all for an ask that is known to take longer.
        """
        with self._changed:
            hopeful = wait if self._ask_takes() <= wait else 0.0
            self._changed.wait_for(lambda: self._queue or self._exhausted() or self._error, timeout=hopeful)
            if self._error is not None:
                raise self._error
            proposal = self._queue[0].proposal if self._queue else None
            if proposal is not None:
                self.add(proposal.running())
            return proposal

    def exhausted(self) -> bool:
        """Whether nothing is left to take and the proposer found nothing more."""
        with self._changed:
            return self._exhausted()

    def close(self, wait: float = 1.0) -> None:
        """End the thread; an ask that takes longer than `wait` seconds ends by itself later, to no effect."""
        with self._changed:
            self._closed = True
            self._queue = []
            self._changed.notify_all()
        self._proposer.close()
        self._thread.join(wait)

    def _follow(self, known: Sequence[Evaluation]) -> None:
        self._known = known
        self._tally.follow(known)
        self._queue = [one for one in self._queue if _name(one.proposal) not in self._tally.fingerprints]
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            while (task := self._next_task()) is not None:
                self._began = monotonic()
                proposal = self._proposer.propose(task.known)
                self._took, self._began = monotonic() - self._began, None
                self._keep(proposal, task)
        except Exception as error:  # raised by `take`, in the driver
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _ask_takes(self) -> float:
        began = self._began
        return self._took if began is None else max(self._took, monotonic() - began)

    def _next_task(self) -> _Task | None:
        """Waits for something to do; None when closed."""
        with self._changed:
            while not self._closed:
                task = self._task()
                if task is not None:
                    return task
                self._changed.wait()
            return None

    def _task(self) -> _Task | None:
        if not self._begun:
            return None
        room = min(self._depth, self._budget - len(self._known)) - len(self._queue)
        outdated = next((one for one in self._queue if one.results < _FRESH * self._tally.results), None)
        if room > 0 and self._nothing_besides != len(self._known) + len(self._queue):
            outdated = None
        elif outdated is None:
            return None
        queued = [one.proposal.running() for one in self._queue if one is not outdated]
        return _Task(known=(*self._known, *queued), results=self._tally.results, instead_of=outdated)

    def _keep(self, proposal: Proposal | None, task: _Task) -> None:
        with self._changed:
            if self._closed:
                return
            if proposal is None and task.instead_of is None:
                self._nothing_besides = len(task.known)
            self._put(proposal, task)
            self._changed.notify_all()

    def _put(self, proposal: Proposal | None, task: _Task) -> None:
        """Without a new proposal an outdated one is as good as one made now."""
        place = next((at for at, one in enumerate(self._queue) if one is task.instead_of), None)
        if proposal is not None and not self._is_known(_name(proposal)):
            ready = _Ready(proposal=proposal, results=task.results)
            self._queue[slice(len(self._queue), None) if place is None else slice(place, place + 1)] = [ready]
        elif place is not None:
            self._queue[place] = replace(self._queue[place], results=task.results)

    def _is_known(self, name: str) -> bool:
        return name in self._tally.fingerprints or any(_name(one.proposal) == name for one in self._queue)

    def _exhausted(self) -> bool:
        return not self._queue and self._nothing_besides == len(self._known)


def _name(proposal: Proposal) -> str:
    return proposal.configuration.fingerprint
