"""A background thread that carries entries from a spool to a slow or absent service, in order, nobody waiting for it.

What was said is on disk before it is carried, so memory stays small and nothing is lost however long the service is
away. A batch that could not be carried is tried again, first soon and then ever more slowly; an entry that the service
refuses for good is left out and named in `problem`. Between batches the thread waits a little, so that what is said
meanwhile travels together; only `drain` and `close` make it hurry, and they wait only as long as something moves.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.errors import ServiceError
from orchestrator.tracking.delivery import DeliveryError, Moved, Verdict
from orchestrator.tracking.entry import Entry, Reported, RunUpdate, decode, encode
from orchestrator.tracking.spool import Spool

MOST_ENTRIES = 200
"""In a batch."""
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 10.0
"""Seconds between tries."""


@dataclass(frozen=True)
class _Action:
    label: str
    act: Callable[[Moved], None]
    position: int
    """Everything in the spool before this comes first."""


class Flusher:
    """Carries one spool; every method is called by one thread, the tracker's caller."""

    def __init__(
        self,
        spool: Spool,
        deliver: Callable[[Sequence[Entry], Moved], None],
        patience: float = 20.0,
        gather: float = 0.5,
    ) -> None:
        """`deliver` carries a batch, in another thread; it bears being given an entry again and raises only
        `DeliveryError`s. `gather`: seconds before a batch that is not full.
        """
        self._spool, self._deliver, self._patience, self._gather = spool, deliver, patience, gather
        self._actions: deque[_Action] = deque()
        self._changed = threading.Condition()
        self._idle = self._stopped = self._urgent = False
        self._hurried = 0
        self._tries, self._moved = 0, time.monotonic()
        self._lost: Counter[str] = Counter()
        self._refused: dict[str, str] = {}
        self._failing, self._hopeless = "", False
        self._ever_failed = False
        self._thread = threading.Thread(target=self._run, name="tracking-flusher", daemon=True)
        self._thread.start()

    def say(self, entry: Entry) -> None:
        """Keep an entry for delivery. When the disk does not take it, it is lost and counted."""
        try:
            self._spool.append(encode(entry))
        except OSError as error:
            what = "reports" if isinstance(entry, Reported) else "changes of state"
            self._lost[f"{what} could not be kept for MLflow ({error.strerror or error})"] += 1
            return
        if self._idle:
            with self._changed:
                self._changed.notify_all()

    def act(self, label: str, action: Callable[[Moved], None]) -> None:
        """Have something done in the thread once everything said before has been carried; it may be done again."""
        with self._changed:
            self._actions.append(_Action(label, action, self._spool.end))
            self._changed.notify_all()

    def problem(self) -> str | None:
        """What could not be carried so far, in one line, or None."""
        with self._changed:
            parts = [self._spool.trouble] if self._spool.trouble else []
            parts += [f"{label}: {reason}" for label, reason in list(self._refused.items())[:3]]
            parts += [f"{count} {what}" for what, count in self._lost.items()]
            if self._failing:
                parts.append(f"{self._failing}; {self._spool.waiting} reports and changes of state wait")
        return "; ".join(parts) or None

    @property
    def doubtful(self) -> bool:
        """Whether the service may hold less or more than was said: the disk did not take an entry, or a try failed.

        A request that had no answer in time may be met later, beside the one that was made instead of it.
        """
        return bool(self._lost) or self._ever_failed

    def drain(self) -> None:
        """Wait until everything was carried; a ServiceError says what was not when nothing moves any more."""
        if not self._waited():
            raise ServiceError(f"not yet tracked: {self.problem() or 'the service does not answer'}")

    def close(self) -> None:
        """Carry what is left, end the thread, let go of the spool, and raise what could not be carried."""
        done = self._waited()
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if done:
            self._thread.join()
        self._spool.close()
        if not done or self.problem():
            raise ServiceError(f"not everything was tracked: {self.problem() or 'the service does not answer'}")

    def _waited(self) -> bool:
        """Hurry, and wait while anything moves; whether everything was carried."""
        with self._changed:
            self._hurried += 1
            self._urgent = True
            self._moved, tries = time.monotonic(), self._tries
            self._changed.notify_all()
            while self._work() and time.monotonic() - self._moved <= self._patience:
                if self._hopeless and self._tries > tries:
                    break
                self._changed.wait(timeout=_FIRST_DELAY)
            self._hurried -= 1
            return not self._work()

    def _work(self) -> bool:
        return bool(self._spool.waiting or self._actions)

    def _run(self) -> None:
        pause = delay = 0.0
        while self._awaited(pause):
            carried = self._round()
            delay = 0.0 if carried else min(max(_FIRST_DELAY, 2 * delay), _LONGEST_DELAY)
            gathered = self._spool.waiting >= MOST_ENTRIES
            pause = delay if gathered else max(delay, self._gather)

    def _awaited(self, pause: float) -> bool:
        """Wait until there is something to do and it is time for it; False when there never will be."""
        with self._changed:
            if self._hurried:
                pause = _FIRST_DELAY if self._failing else 0.0
            self._changed.wait_for(lambda: self._stopped or self._urgent, timeout=pause)
            self._idle = True
            self._changed.wait_for(lambda: self._stopped or self._work())
            self._idle = self._urgent = False
            return not self._stopped

    def _round(self) -> bool:
        """Carry one batch, or act; False when it must be tried again."""
        action = self._actions[0] if self._actions else None
        try:
            lines, position = self._spool.read(MOST_ENTRIES, action.position if action else None)
        except OSError as error:
            return self._failed(DeliveryError(Verdict.RETRY, error.strerror or str(error)))
        if lines:
            if carried := self._carried(self._entries(lines)):
                self._spool.delivered(position, len(lines))
        elif carried := action is not None and self._attempted(action.label, action.act):
            self._actions.popleft()
        if carried:
            self._succeeded()
        return carried

    def _entries(self, lines: Sequence[bytes]) -> list[Entry]:
        entries = []
        for line in lines:
            try:
                entries.append(decode(line))
            except ValueError as error:
                self._refused.setdefault("a damaged line was left out", str(error))
        return entries

    def _carried(self, entries: Sequence[Entry]) -> bool:
        """Deliver entries, one by one when they are refused together, so that only the bad ones are left out."""
        if len(entries) < 2:
            return all(self._attempted(_label(entry), partial(self._deliver, entries)) for entry in entries)
        try:
            self._deliver(entries, self._progressed)
        except DeliveryError as error:
            if error.verdict is Verdict.REFUSED:
                return all(self._carried([entry]) for entry in entries)
            return self._failed(error)
        return True

    def _attempted(self, label: str, act: Callable[[Moved], None]) -> bool:
        """Whether it is done with: it succeeded, or never will."""
        try:
            act(self._progressed)
        except DeliveryError as error:
            if error.verdict is not Verdict.REFUSED:
                return self._failed(error)
            with self._changed:
                self._refused.setdefault(label, str(error))
        return True

    def _progressed(self) -> None:
        self._moved = time.monotonic()

    def _succeeded(self) -> None:
        with self._changed:
            self._tries += 1
            self._moved, self._failing, self._hopeless = time.monotonic(), "", False
            self._changed.notify_all()

    def _failed(self, error: DeliveryError) -> bool:
        with self._changed:
            self._tries += 1
            self._failing, self._hopeless, self._ever_failed = str(error), error.verdict is Verdict.WAIT, True
            self._changed.notify_all()
        return False


def _label(entry: Entry) -> str:
    if isinstance(entry, RunUpdate):
        what = "end" if entry.status.ended else "start"
        return f"{what} of {entry.name}" if entry.number is None else f"{what} of trial {entry.number}"
    return f"metrics of trial {entry.number}"
