"""A study's projection into MLflow, in a process of its own.

MLflow takes seconds of processor time to import and milliseconds for every request, in which a Python process does
nothing else. Here the driver, and what trains in it, never notice; and MLflow's memory is not the driver's.

Protocol (`orchestrator.child_process`): first whose runs they are; then for every `_Deliver` or `_Reconcile` any number
of `_Moved`, while it goes on, and one `_Done` or `_Failed`. A process that died is started again with the next request;
one whose driver is gone finishes what it was writing, and until it has, a lock holds its successor back.
"""

import fcntl
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from orchestrator.child_process import Answers, ChildDiedError, ChildProcess, Reply, serve
from orchestrator.home import Home
from orchestrator.loop_table import read_text
from orchestrator.records import StudyRecord
from orchestrator.tracking.delivery import DeliveryError, Moved, Verdict
from orchestrator.tracking.entry import Entry
from orchestrator.tracking.mlflow_connection import is_refusal, is_transient, prepare, reason
from orchestrator.tracking.mlflow_projection import MlflowProjection
from orchestrator.tracking.mlflow_runs import MlflowRuns


@dataclass(frozen=True, kw_only=True)
class _Whose:
    home: Home
    study: str
    created: str | None
    """When the study was created; None means every study of the name."""


@dataclass(frozen=True, kw_only=True)
class _Deliver:
    entries: Sequence[Entry]


@dataclass(frozen=True, kw_only=True)
class _Reconcile:
    study: StudyRecord
    owned: Collection[int]
    time: int


@dataclass(frozen=True)
class _Moved:
    pass


@dataclass(frozen=True)
class _Done:
    pass


@dataclass(frozen=True)
class _Failed:
    verdict: Verdict
    reason: str


class MlflowProcess:
    """As `MlflowProjection`, but every failure is a `DeliveryError`; belongs to one thread, except for `close`."""

    def __init__(self, home: Home, study: str, created: str | None) -> None:
        """`created`: when the study was, which tells its runs from those of an earlier one of the same name."""
        self._whose = _Whose(home=home, study=study, created=created)
        self._child: ChildProcess | None = None
        self._closed = False

    def deliver(self, entries: Sequence[Entry], moved: Moved) -> None:
        """See `MlflowProjection.deliver`."""
        self._request(_Deliver(entries=entries), moved)

    def reconcile(self, study: StudyRecord, owned: Collection[int], time: int, moved: Moved) -> None:
        """See `MlflowProjection.reconcile`."""
        self._request(_Reconcile(study=study, owned=owned, time=time), moved)

    def close(self) -> None:
        """Ask nothing more, from any thread; a request that is under way may end, and nobody waits for that."""
        self._closed = True
        if self._child is not None:
            self._child.let_go()

    def _request(self, request: _Deliver | _Reconcile, moved: Moved) -> None:
        if self._closed:
            raise DeliveryError(Verdict.WAIT, "the tracker was closed")
        self._child = self._child or ChildProcess(__name__, self._whose)
        try:
            self._child.send(request)
            while isinstance(reply := self._child.receive(), _Moved):
                moved()
        except ChildDiedError as died:
            self._child = None
            raise DeliveryError(Verdict.RETRY, f"the process that speaks with MLflow ended: {died}") from None
        if isinstance(reply, _Failed):
            raise DeliveryError(reply.verdict, reply.reason)


def main() -> None:
    """What the process runs."""
    prepare()
    serve(_projecting)


def _projecting(whose: _Whose) -> Answers:
    import_module("mlflow")
    projection = MlflowProjection(partial(_open_runs, whose), partial(_loop_table, whose))
    turn = _Turn(whose.home.tracking_lock(whose.study))

    def answers(request: _Deliver | _Reconcile, reply: Reply) -> None:
        try:
            if turn.take():
                reply(_Moved())  # after the start, which takes its time, and never for a mere try
            if isinstance(request, _Deliver):
                projection.deliver(request.entries, lambda: reply(_Moved()))
            else:
                projection.reconcile(request.study, request.owned, request.time, lambda: reply(_Moved()))
        except BrokenPipeError:
            raise  # of the driver, which is gone: MLflow's are wrapped by whoever made the request
        except DeliveryError as error:
            reply(_Failed(error.verdict, str(error)))
        except Exception as error:
            reply(_failed(error))
        else:
            reply(_Done())

    return answers


def _open_runs(whose: _Whose) -> MlflowRuns:
    runs = MlflowRuns(whose.home, whose.study, create=True)
    runs.created = whose.created
    return runs


def _loop_table(whose: _Whose, number: int) -> str | None:
    return read_text(whose.home.loop_table(whose.study, number))


def _failed(error: Exception) -> _Failed:
    if is_transient(error):
        return _Failed(Verdict.RETRY, reason(error))
    if is_refusal(error):
        return _Failed(Verdict.REFUSED, f"{type(error).__name__}: {reason(error)}")
    return _Failed(Verdict.WAIT, reason(error))


class _Turn:
    """The lock of whoever writes; held from the first request until the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Hold it; whether it was not held before. A `DeliveryError` while the process of an earlier driver does."""
        if self._handle is not None:
            return False
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise DeliveryError(Verdict.RETRY, "what an earlier driver said is still being written") from None
        self._handle = handle
        return True
