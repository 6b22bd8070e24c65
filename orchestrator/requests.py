"""What others ask of a running study's driver: stop, pause, go on, try failures again, spend more.

Whoever asks appends one attribute to the study, under an id of its own; the driver reads it, carries it out and appends
an answer under the same id. It is the one exception to the driver being the only writer. A request that was answered is
never carried out again, and one that nobody answers stays until a driver comes.

    request:ID    {"kind": "stop", "configurations": null, "by": "host:pid",
                   "to": "host:pid", "at": "2026-01-31T12:00:00+00:00"}
    answer:ID     {"message": "stopping", "at": "..."}
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from orchestrator.process_name import process_name

_REQUEST, _ANSWER = "request:", "answer:"


class RequestKind(StrEnum):
    """What can be asked."""

    STOP = "stop"
    """End, with what runs given back."""
    PAUSE = "pause"
    """Hold no device, but stay."""
    RESUME = "resume"
    """Go on after a pause."""
    RETRY_FAILED = "retry_failed"
    """Try every failed trial again."""
    BUDGET = "budget"
    """Allow more configurations."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request, not answered yet."""

    id: str
    kind: RequestKind
    configurations: int | None = None
    """The new budget, of a BUDGET request."""
    by: str
    """`host:pid` of whoever asks."""
    to: str
    """`host:pid` of the driver that is asked; a later driver leaves undone what was not meant for it."""
    at: datetime


def new_request(kind: RequestKind, to: str, now: datetime, configurations: int | None = None) -> Request:
    """A request of this process to the driver `to`."""
    request_id, by = secrets.token_hex(8), process_name()
    return Request(id=request_id, kind=kind, configurations=configurations, by=by, to=to, at=now)


def request_to_plain(request: Request) -> tuple[str, dict[str, Any]]:
    """The attribute that asks."""
    return _REQUEST + request.id, {
        "kind": request.kind.value,
        "configurations": request.configurations,
        "by": request.by,
        "to": request.to,
        "at": request.at.isoformat(),
    }


def answer_to_plain(request: Request, message: str, now: datetime) -> tuple[str, dict[str, Any]]:
    """The attribute that answers."""
    return _ANSWER + request.id, {"message": message, "at": now.isoformat()}


def answer_in(attributes: Mapping[str, Any], request: Request) -> str | None:
    """What the driver answered, or None."""
    answer = attributes.get(_ANSWER + request.id)
    return None if answer is None else str(answer["message"])


def pending(attributes: Mapping[str, Any]) -> list[Request]:
    """Requests among a study's attributes that have no answer, the oldest first."""
    waiting = [
        _request(key.removeprefix(_REQUEST), plain)
        for key, plain in attributes.items()
        if key.startswith(_REQUEST) and _ANSWER + key.removeprefix(_REQUEST) not in attributes
    ]
    return sorted(waiting, key=lambda request: request.at)


def _request(request_id: str, plain: Mapping[str, Any]) -> Request:
    return Request(
        id=request_id,
        kind=RequestKind(plain["kind"]),
        configurations=plain["configurations"],
        by=plain["by"],
        to=plain["to"],
        at=datetime.fromisoformat(plain["at"]),
    )
