"""The copies of one attempt's checkpoints in the store, kept up as far as the store can be reached.

Each is stored under STUDY/trials/N/attempt-K/KIND/step-S. What it supersedes is deleted once it is stored itself, so
the store always holds the newest whole checkpoint that ever reached it. While the store is away training goes on: it is
printed and said in the outcome's info under `store`, and tried again at the next checkpoint. It is waited for only
where something would be lost, at the beginning of a later attempt and at the end: at most `sum(WAITS)` seconds.
Without a store all of this does nothing.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from workers.attempt_folder import AttemptFolder
from workers.checkpoint_store import CheckpointStore, NotWholeError, StoreError
from workers.known import Known
from workers.protocol import TrialRequest

WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between tries."""
STATE, BEST, MODEL = "state", "best", "checkpoint"
_PASSING = (STATE, BEST)
"""What is of no use once a later attempt has its own."""

Given = TypeVar("Given")


class StoredCopies:
    """Of the attempt that a request is about. Only the worker that writes checkpoints calls `settle`."""

    def __init__(self, request: TrialRequest, known: Known, wait: Callable[[float], object] = time.sleep) -> None:
        self._store = None if request.store is None else CheckpointStore(request.store)
        self._trial, self._attempt = Path(request.folder).parent, Path(request.folder).name
        self._earlier = [Path(folder).name for folder in request.resume_from]
        self._known, self._wait = known, wait
        self._wanted: dict[str, Path] = {}
        """Local folder by name in the store."""
        self._stored: set[str] = set()
        """Of this attempt, superseded ones too."""

    def keep(self, kind: str, folder: Path, step: int) -> None:
        """Have a checkpoint stored from now on, instead of the one of its kind before it."""
        self.drop(kind)
        if folder.is_dir():
            self._wanted[f"{self._attempt}/{kind}/{_step(step)}"] = folder

    def drop(self, kind: str) -> None:
        """Have none of a kind stored any more."""
        self._wanted = {name: folder for name, folder in self._wanted.items() if _kind(name) != kind}

    def settle(self, *, patiently: bool = False) -> None:
        """Make the store hold what it should, as far as it can be reached."""
        if self._store is None:
            return
        store, doing = self._store, "nothing"
        try:
            for name, folder in self._wanted.items():
                if name not in self._stored:
                    doing = f"{_kind(name)} not stored"
                    self._tried(lambda name=name, folder=folder: store.put(folder, name), patiently)  # type: ignore[misc]
                    self._stored.add(name)
            doing = "superseded copies not removed"
            self._remove_superseded(store)
        except StoreError as error:
            self._known.info["store"] = f"{doing}: {error}"
            print(f"{doing}: {error}")
        else:
            self._known.info.pop("store", None)

    def states(self, folder: AttemptFolder) -> Iterator[Path]:
        """States of an earlier attempt, newest first: this machine's, where it ran here, and then the store's."""
        yield from folder.states()
        for name in sorted(self._names_of(folder), reverse=True):
            if self._fetch(f"{Path(folder.path).name}/{STATE}/{name}", folder.state / name):
                yield folder.state / name

    @contextmanager
    def at_hand(self, state: Path) -> Iterator[Path]:
        """A state that rank 0 went on from: its own folder where this machine sees it, else a copy for the moment.

        A `StoreError` when it cannot be had.
        """
        if self._store is None or state.is_dir():
            yield state
            return
        store, name = self._store, state.relative_to(self._trial).as_posix()
        with TemporaryDirectory(prefix="plt-state-") as folder:
            copy = Path(folder) / state.name
            self._tried(lambda: store.fetch(name, copy), patiently=True)
            yield copy

    def have_best(self, folder: AttemptFolder, step: int) -> None:
        """Have the best model of an earlier attempt on this machine, if the store has it."""
        if not folder.best.is_dir() and self._store is not None:
            self._fetch(f"{Path(folder.path).name}/{BEST}/{_step(step)}", folder.best)

    def _names_of(self, folder: AttemptFolder) -> set[str]:
        if self._store is None:
            return set()
        store, name = self._store, f"{Path(folder.path).name}/{STATE}"
        try:
            names = self._tried(lambda: store.names(name), patiently=True)
        except StoreError as error:
            self._skipped(error)
            return set()
        return {each for each in names if AttemptFolder.is_state(each)}

    def _fetch(self, name: str, folder: Path) -> bool:
        """Whether a stored set is on this machine now, in place of one that was of no use."""
        assert self._store is not None
        store = self._store
        shutil.rmtree(folder, ignore_errors=True)
        try:
            self._tried(lambda: store.fetch(name, folder), patiently=True)
        except StoreError as error:
            self._skipped(error)
            return False
        print(f"fetched {name} from {store.address}")
        return True

    def _skipped(self, error: StoreError) -> None:
        self._known.info.setdefault("skipped_states", []).append(str(error))
        print(f"skipped a stored state: {error}")

    def _remove_superseded(self, store: CheckpointStore) -> None:
        for name in sorted(self._stored - self._wanted.keys()):
            store.remove(name)
            self._stored.discard(name)
        while self._earlier and any(_kind(name) in (STATE, MODEL) for name in self._stored):
            for kind in _PASSING:
                store.remove(f"{self._earlier[0]}/{kind}")
            self._earlier.pop(0)

    def _tried(self, action: Callable[[], Given], patiently: bool) -> Given:
        """The result of an action, tried again while the store is away."""
        for seconds in WAITS if patiently else ():
            try:
                return action()
            except NotWholeError:
                raise
            except StoreError as error:
                print(f"{error}; trying again in {seconds:g} s")
                self._wait(seconds)
        return action()


def _step(step: int) -> str:
    return AttemptFolder.state_name(step)


def _kind(name: str) -> str:
    return name.split("/")[1]
