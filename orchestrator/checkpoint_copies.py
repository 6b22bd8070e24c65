"""The driver's side of the store that `PLT_CHECKPOINTS` names: is it usable, and what in it is needed no more?

Workers store and supersede copies (`workers.stored_copies`). That a trial is over, though, only the driver knows, and
what a continuation would need is deleted then. This happens in a thread, because the store may be slow or away: what
cannot be deleted now is tried again with the next trial that ends, and when the study is next driven.
"""

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from workers.attempt_folder import AttemptFolder
from workers.checkpoint_store import CheckpointStore, NotWholeError, StoreError
from workers.stored_copies import BEST, MODEL, STATE

_CLOSING_SECONDS = 20.0
"""At the end of a study, for what is still to be deleted."""


def require_usable(home: Home) -> str | None:
    """The store's address after something was written, read back and deleted there; None where none is named.

    A `ServiceError` says what cannot be done.
    """
    if home.checkpoint_store is None:
        return None
    try:
        store = CheckpointStore(home.checkpoint_store)
        store.probe(f"plt-probe-{secrets.token_hex(4)}")
    except StoreError as error:
        raise ServiceError(
            f"checkpoints cannot be stored: {error}; start the store, set its keys, or unset PLT_CHECKPOINTS"
        ) from error
    return store.address


@contextmanager
def discarding(
    home: Home, study: str, finished: Iterable[int], notice: Callable[[str], None]
) -> Iterator[Callable[[int], None]]:
    """A function that is told which trial has ended; `finished` had before. Without a store it does nothing."""
    address = home.stored_trials(study)
    if address is None:
        yield lambda _number: None
        return
    states = _StoredStates(CheckpointStore(address), finished)
    try:
        yield states.discard
    finally:
        left = states.close()
        if left is not None:
            notice(left)


class _StoredStates:
    """Deletes resumable states of finished trials, one after the other."""

    def __init__(self, store: CheckpointStore, finished: Iterable[int]) -> None:
        self._store = store
        self._ended: SimpleQueue[int | None] = SimpleQueue()
        self._left, self._error = {str(number) for number in finished}, ""
        self._looked = False
        self._thread = threading.Thread(target=self._work, name="stored-states", daemon=True)
        self._thread.start()

    def discard(self, number: int) -> None:
        """A trial has ended."""
        self._ended.put(number)

    def close(self) -> str | None:
        """Wait a while; what is left, in words."""
        self._ended.put(None)
        self._thread.join(_CLOSING_SECONDS)
        if not self._thread.is_alive() and not self._left:
            return None
        why = self._error or "it answers slowly"
        return f"training states of finished trials are still stored ({why}); the next driver of the study deletes them"

    def _work(self) -> None:
        self._delete()
        while (number := self._ended.get()) is not None:
            self._left.add(str(number))
            self._delete()

    def _delete(self) -> None:
        try:
            if not self._looked:
                self._left &= self._store.holders(STATE)
                self._looked = True
            for number in sorted(self._left):
                for attempt in self._store.names(number):
                    self._store.remove(f"{number}/{attempt}/{STATE}")
                self._left.discard(number)
        except StoreError as error:
            self._error = str(error)


def fetch_model(home: Home, study: str, number: int, attempt: int) -> None:
    """Have an attempt's final and best model in this home, where it lies only in the store; else change nothing.

    A `ServiceError` when the store does not answer.
    """
    address, folder = home.stored_trials(study), AttemptFolder(home.attempt(study, number, attempt))
    if address is None or folder.model.is_dir():
        return
    try:
        store = CheckpointStore(address)
        for kind, local in ((BEST, folder.best), (MODEL, folder.model)):
            _fetch_newest(store, f"{number}/attempt-{attempt}/{kind}", local)
    except StoreError as error:
        raise ServiceError(f"the model of trial {study}/{number} is not in this home, and {error}") from error


def _fetch_newest(store: CheckpointStore, name: str, local: Path) -> None:
    for version in reversed([each for each in store.names(name) if AttemptFolder.is_state(each)]):
        try:
            store.fetch(f"{name}/{version}", local)
        except NotWholeError:
            continue
        return
