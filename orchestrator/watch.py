"""Watching a study that another process drives: a snapshot about once a second until nobody drives it any more."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime

from orchestrator.followed_study import FollowedStudy
from orchestrator.home import Home
from orchestrator.live_state import LiveState, read_live
from orchestrator.snapshot import Snapshot
from orchestrator.study import utc_now

_EVERY_SECONDS = 1.0


class Watch:
    """Looks at one study; never writes."""

    def __init__(
        self,
        home: Home,
        name: str,
        *,
        clock: Callable[[], datetime] = utc_now,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """`wait` is called with the seconds between two looks. A `StudyError` when there is no such study."""
        self._study = FollowedStudy(home, name)
        self._live_file, self._live = home.live(name), LiveState()
        self._clock, self._wait = clock, wait

    def snapshots(self) -> Iterator[Snapshot]:
        """At least one; the last is taken when the study has no living driver, and is final."""
        while (snapshot := self._look()).driven:
            yield snapshot
            self._wait(_EVERY_SECONDS)
        yield snapshot

    def _look(self) -> Snapshot:
        """How the study stands; a live file that cannot be read now leaves what it said last."""
        self._live = read_live(self._live_file) or self._live
        return Snapshot(study=self._study.read(), live=self._live, at=self._clock())
