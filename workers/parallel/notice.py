"""A line that rank 0 leaves in the trial's store for workers on machines that do not see its disk."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from workers.attempt_folder import AttemptFolder
from workers.checkpoint_store import CheckpointStore, NotWholeError, StoreError

_EVERY_SECONDS = 1.0
"""How often a store is asked for it."""
_FILE = "address.txt"


class StoredNotice:
    """The line of one attempt; without a store there is none. A store that is away is asked again, and nothing raised:
    whoever waits for the line gives up by itself.
    """

    def __init__(self, store: str | None, attempt: str) -> None:
        self._store = None if store is None else CheckpointStore(store)
        self._name = f"{attempt}/{AttemptFolder(attempt).meeting.name}"
        self._asked_at = float("-inf")

    def write(self, line: str) -> None:
        """Leave the line."""
        if self._store is None:
            return
        with TemporaryDirectory(prefix="plt-notice-") as folder:
            (Path(folder) / _FILE).write_text(line, encoding="utf-8")
            try:
                self._store.put(Path(folder), self._name)
            except StoreError as error:
                print(f"workers on other machines cannot find this one: {error}")

    def read(self) -> str | None:
        """The line, if it is there; asked for at most once a second."""
        if self._store is None or time.monotonic() - self._asked_at < _EVERY_SECONDS:
            return None
        self._asked_at = time.monotonic()
        with TemporaryDirectory(prefix="plt-notice-") as folder:
            found = Path(folder) / "found"
            try:
                self._store.fetch(self._name, found)
            except NotWholeError:
                return None
            except StoreError as error:
                print(f"cannot ask where the other workers are: {error}")
                return None
            return (found / _FILE).read_text(encoding="utf-8")

    def remove(self) -> None:
        """All have read it."""
        if self._store is not None:
            try:
                self._store.remove(self._name)
            except StoreError as error:
                print(f"a notice is left in the store: {error}")
