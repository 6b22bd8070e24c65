"""Journals as files of the home: one for each study, in the study's folder. See `orchestrator.journal_store`."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator.folder_lock import folder_holder, folder_lock
from orchestrator.home import Home, valid_name
from orchestrator.journal_store import Entry, Standing, Trouble, give_up

if TYPE_CHECKING:
    from orchestrator.journal_file import JournalFile


class FileStore:
    """The journals of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def names(self) -> list[str]:
        """See the protocol."""
        names = (path.parent.name for path in self._home.studies.glob("*/optuna.journal"))
        return sorted(name for name in names if valid_name(name))

    def exists(self, name: str) -> bool:
        """See the protocol."""
        return self._home.journal(name).exists()

    def standing(self, name: str) -> Standing | None:
        """See the protocol."""
        try:
            stat = self._home.journal(name).stat()
        except FileNotFoundError:
            return None
        written = datetime.fromtimestamp(stat.st_mtime, UTC)
        return Standing(identity=stat.st_ino, length=stat.st_size, written=written)

    def create(self, name: str, entries: Sequence[Entry]) -> bool:
        """Write the journal aside and rename it; the caller holds the driver's lock."""
        from orchestrator.journal_file import JournalFile

        path = self._home.journal(name)
        if path.exists():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".new")
        aside.unlink(missing_ok=True)
        JournalFile(aside).append_logs([dict(entry) for entry in entries])
        aside.replace(path)
        return True

    def journal(self, name: str, on_trouble: Trouble = give_up, *, driving: bool = False) -> "JournalFile":
        """See the protocol; the lock of whoever drives is the kernel's, so nobody can have taken over."""
        del driving
        from orchestrator.journal_file import JournalFile

        return JournalFile(self._home.journal(name), on_trouble)

    def driving(self, name: str) -> AbstractContextManager[None]:
        """See the protocol."""
        return folder_lock(self._home, name)

    def driver(self, name: str) -> str | None:
        """See the protocol."""
        return folder_holder(self._home, name)

    def place(self, name: str) -> str:
        """See the protocol."""
        return str(self._home.journal(name))

    def examine(self) -> str:
        """See the protocol."""
        return f"{len(self.names())} in files of {self._home.root}"

    def removal(self, name: str) -> str:
        """See the protocol."""
        return f"move {self._home.study(name)} away"
