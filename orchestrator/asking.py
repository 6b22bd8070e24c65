"""Asking the driver of a study for something, from any process that sees the home."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from orchestrator.driver_lock import living_driver
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.journal import open_journal
from orchestrator.requests import Request, RequestKind, answer_in, new_request, request_to_plain
from orchestrator.studies import refuse_unknown

_LOOK_SECONDS, _PATIENCE_SECONDS = 0.1, 120.0
"""A driver answers between two events; a long step on the local backend may take minutes."""


class Asking:
    """Asks the driver of one study."""

    def __init__(
        self, home: Home, study: str, wait: Callable[[float], None] = time.sleep, patience: float = _PATIENCE_SECONDS
    ) -> None:
        refuse_unknown(home, study)
        self._home, self._study, self._wait, self._patience = home, study, wait, patience
        self._storage = open_journal(home, study)
        self._id = self._storage.get_study_id_from_name(study)

    def post(self, kind: RequestKind, configurations: int | None = None) -> Request:
        """Write the request and return at once; a `StudyError` when nobody drives the study."""
        driver = living_driver(self._home, self._study)
        if driver is None:
            raise StudyError(f"nobody drives study {self._study} now; continue it with `plt resume {self._study}`")
        request = new_request(kind, driver, datetime.now(UTC), configurations)
        self._storage.set_study_user_attr(self._id, *request_to_plain(request))
        return request

    def ask(self, kind: RequestKind, configurations: int | None = None) -> str:
        """Write the request and wait for its answer, which is returned.

        Raises a `StudyError` when nobody drives the study, or nobody answers for two minutes; a request that was
        written stays, and is carried out by the next look of a driver.
        """
        request = self.post(kind, configurations)
        waited = 0.0
        while waited < self._patience:
            driven = living_driver(self._home, self._study) is not None
            answer = answer_in(self._storage.get_study_user_attrs(self._id), request)  # after the look: it may end now
            if answer is not None:
                return f"{self._study}: {answer} ({request.to})"
            if not driven:
                raise StudyError(
                    f"the driver of {self._study} ended before it answered; see `plt status {self._study}`"
                )
            self._wait(_LOOK_SECONDS)
            waited += _LOOK_SECONDS
        raise StudyError(
            f"{request.to} has not answered yet; it will at its next report, see `plt status {self._study}`"
        )
