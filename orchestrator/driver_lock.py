"""One driver per study: refuses a second one, and tells who the first is, wherever the study is stored."""

from contextlib import AbstractContextManager

from orchestrator.home import Home
from orchestrator.journal_store import journals


def driver_lock(home: Home, name: str) -> AbstractContextManager[None]:
    """Be the driver of a study while a block runs; a `StudyError` names the host and pid of the one that is."""
    return journals(home).driving(name)


def living_driver(home: Home, name: str) -> str | None:
    """`host:pid` of the process that drives a study now, or None."""
    return journals(home).driver(name)
