"""Proposals prepared before a device is free, so that a slow sampler never keeps one waiting.

The driver calls `update` whenever more is known and `take` when a device is free. In between a thread keeps up to
`depth` proposals ready. Those and the ones taken count as running for the next ones, a queued one that became known
meanwhile is dropped, and one that was made when far less was known is replaced while there is time.

When nothing is ready, `take` waits a little, then something quicker stands in: for gp a tpe that looks back only a
little (kept ready by a thread of its own), else a random configuration. How long it waits is an allowance: it grows by
a small share of the time that passes on `depth` devices, so that all waiting together idles no more than that share of
them, however long the trials are and however slow the sampler is.

With depth 0, and for samplers that are instant, `take` proposes itself and nothing runs in the background: the same
proposals in the same order every time. Nothing is written anywhere; what was not taken when the driver stops is gone.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from orchestrator.producer import Producer
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.proposing_process import ProposingProcess
from orchestrator.tally import Tally

T = TypeVar("T")

_SHARE = 0.002
"""Of the devices' time that may be waited."""
_FIRST = 0.3
"""Seconds that may be waited from the start, as when a study is continued and every device is free at once."""
_LONGEST = 1.0
"""Seconds that one `take` may wait."""
_PROCESS_STARTS = 3.0
"""Seconds until a process that imports torch answers for the first time."""


class AskAhead:
    """A queue of proposals; every method is called from one thread, the driver's."""

    def __init__(self, proposer: Proposer, depth: int, clock: Callable[[], float] = monotonic) -> None:
        """`depth` is best the number of trials that run at the same time."""
        self.depth = depth
        self._proposer = proposer
        self._known: Sequence[Evaluation] = ()
        self._tally = Tally()
        self._taken: list[Evaluation] = []
        """Not yet among the known ones."""
        self._wait = Wait(depth, clock)
        self._producers = _producers(proposer, depth) if depth > 0 and not proposer.instant else []

    def update(self, known: Sequence[Evaluation]) -> None:
        """Hand over what is known: all configurations in the order of asking, those that were taken among them."""
        self._known = tuple(known)
        self._tally.follow(self._known)
        self._taken = [one for one in self._taken if one.fingerprint not in self._tally.fingerprints]
        for producer in self._producers:
            producer.update(self._all())

    def take(self) -> Proposal | None:
        """The next proposal, or None when there seems to be no further configuration.

        Waits for the sampler at most as long as is left, never longer than a second. Raises whatever the sampler
        raised in the background.
        """
        proposal = self._next() if self._producers else self._proposer.propose(self._all())
        if proposal is not None:
            self._taken.append(proposal.running())
            for producer in self._producers:
                producer.add(self._taken[-1])
        return proposal

    def close(self) -> None:
        """Forget the queue and end the threads; an ask that is under way ends by itself, to no effect."""
        for producer in self._producers:
            producer.close()

    def _next(self) -> Proposal | None:
        for producer in self._producers:
            proposal = self._wait.at_most(producer.take)
            if proposal is not None or producer.exhausted():
                return proposal
        return self._proposer.guess(self._all())

    def _all(self) -> Sequence[Evaluation]:
        return (*self._known, *self._taken)


def _producers(proposer: Proposer, depth: int) -> list[Producer]:
    """The sampler's, then that of what stands in for it."""
    budget = proposer.spec.budget.configurations
    if not proposer.slow:
        return [Producer(proposer, depth, budget)]
    own = Producer(ProposingProcess(proposer), depth, budget, takes=_PROCESS_STARTS)
    return [own, Producer(proposer.stand_in(), depth, budget)]


class Wait:
    """How long a driver waits for proposals: so long that `devices` devices idle no more than a share of their time."""

    def __init__(self, devices: int, clock: Callable[[], float]) -> None:
        self._devices, self._clock = devices, clock
        self._left, self._since = _FIRST, clock()

    def at_most(self, wait: Callable[[float], T]) -> T:
        """What `wait` gives, which may take as many seconds as are left; those that it took are spent."""
        began = self._clock()
        self._left = min(_LONGEST, self._left + _SHARE * self._devices * (began - self._since))
        self._since = began
        found = wait(max(0.0, self._left))
        self._left -= self._clock() - began
        return found
