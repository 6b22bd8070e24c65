"""A team's database for rounds whose study is kept there, read by plain SQL and plain Optuna."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from optuna.storages.journal import BaseJournalBackend

from orchestrator.home import Home


@dataclass(frozen=True)
class TeamHome(Home):
    """A home whose studies are in a database."""

    storage: str

    @property
    def storage_uri(self) -> str:
        """Its address, password and all."""
        return self.storage


def home_of(root: Path, storage: str | None) -> Home:
    """A home, with its studies in a database where there is one."""
    return Home(root) if storage is None else TeamHome(root, storage)


class Rows(BaseJournalBackend):
    """The entries of a study, read only."""

    def __init__(self, storage: str, name: str) -> None:
        self._storage, self._name = storage, name

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """In order."""
        with psycopg.connect(self._storage) as connection:
            rows = connection.execute(
                "select entry from plt_journal join plt_study on plt_study.id = study where name = %s order by number",
                [self._name],
            )
            for (entry,) in rows.fetchall()[log_number_from:]:
                yield json.loads(entry)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Nobody writes here."""
        raise NotImplementedError
