"""Where the journals of studies are: in files of the home, or in a database that a team shares.

The one seam between them. Everything else asks `journals(home)`, which looks at `PLT_STORAGE`; folders of studies, with
checkpoints, output and what MLflow has not taken yet, are in the home either way.
"""

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.home import Home

if TYPE_CHECKING:
    from optuna.storages.journal import BaseJournalBackend

Entry = Mapping[str, Any]
Trouble = Callable[[OSError], None]
"""Is told of a read or write that failed. It returns to have it tried again, or raises to give up."""


def give_up(error: OSError) -> None:
    """Trouble nobody waits for."""
    raise error


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a journal stands at one moment."""

    identity: Hashable
    """Another one when another journal took its place under the same name."""
    length: int
    """Grows with every entry."""
    written: datetime
    """When it was last written to; aware."""


class JournalStore(Protocol):
    """Journals of studies by name. What cannot be reached or written is a `ServiceError` of one line."""

    def names(self) -> list[str]:
        """Of all studies, in alphabetical order."""

    def exists(self, name: str) -> bool:
        """Whether there is such a study; a name that is no plain name is refused."""

    def standing(self, name: str) -> Standing | None:
        """How its journal stands, or None when there is none; costs no more than `exists`."""

    def create(self, name: str, entries: Sequence[Entry]) -> bool:
        """A study with these entries, whole or not at all; False when there is one of this name already."""

    def journal(self, name: str, on_trouble: Trouble = give_up, *, driving: bool = False) -> "BaseJournalBackend":
        """Its entries. The driver says that it is, so that nothing of it is written once another one has taken over."""

    def driving(self, name: str) -> AbstractContextManager[None]:
        """Be its driver; a `StudyError` names the host and pid of the one that is."""

    def driver(self, name: str) -> str | None:
        """`host:pid` of the process that drives it now, or None."""

    def place(self, name: str) -> str:
        """Where it is, for messages; without secrets."""

    def examine(self) -> str:
        """What it is and how many studies it has, for people; a `ServiceError` when it cannot be used."""

    def removal(self, name: str) -> str:
        """How it can be done away with, as the end of a sentence that offers to."""


def journals(home: Home) -> JournalStore:
    """The store of a home; a `ServiceError` when `PLT_STORAGE` is no address of one."""
    uri = home.storage_uri
    if uri is None:
        from orchestrator.file_store import FileStore

        return FileStore(home)
    return _database_store(home, uri, os.getpid())


@lru_cache(maxsize=8)
def _database_store(home: Home, uri: str, pid: int) -> JournalStore:
    """One for each process, which keeps its connection."""
    del pid
    from orchestrator.database_store import DatabaseStore

    return DatabaseStore(home, uri)
