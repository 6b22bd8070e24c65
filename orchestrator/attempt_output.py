"""What the attempts of one trial printed, as it lies in the study's home, without the secrets of addresses."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.errors import StudyError
from orchestrator.followed_study import FollowedStudy
from orchestrator.home import Home, without_secrets
from orchestrator.records import AttemptRecord, TrialRecord
from orchestrator.trial_name import find_trial
from workers.attempt_folder import AttemptFolder

_EVERY_SECONDS, _TAIL_BYTES = 0.5, 256 * 1024


class AttemptOutput:
    """The output of one trial's latest attempt, or of the one that is asked for."""

    def __init__(
        self,
        home: Home,
        study: str,
        number: int,
        attempt: int | None = None,
        *,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """`wait` is called with the seconds between two looks. A `StudyError` when there is no such attempt."""
        self._home, self._name, self._number, self._attempt, self._wait = home, study, number, attempt, wait
        self._study = FollowedStudy(home, study)
        self._find(self._trial())

    def lines(self) -> Iterator[str]:
        """The lines that are there now."""
        attempt = self._find(self._trial())
        if attempt is not None:
            yield from _lines(self._path(attempt.number), 0)[0]

    def follow(self) -> Iterator[str]:
        """All lines as they come, over to a later attempt, until the trial, or the attempt asked for, has ended.

        It also ends when nobody drives the study.
        """
        shown, offset = 0, 0
        while True:
            record = self._study.read()
            trial = find_trial(record, self._number)
            attempt = self._find(trial)
            over = record.driver is None or trial.state.finished
            if attempt is not None:
                if attempt.number != shown:
                    if shown:
                        yield from _lines(self._path(shown), offset)[0]
                    shown, offset = attempt.number, 0
                over = over or (self._attempt is not None and attempt.ended is not None)
                lines, offset = _lines(self._path(shown), offset, whole=not over)
                yield from lines
            if over:
                return
            self._wait(_EVERY_SECONDS)

    def why_empty(self) -> str:
        """What to say when there is no line."""
        trial = self._trial()
        attempt = self._find(trial)
        if attempt is None:
            return f"trial {self._number} of {self._name} has no attempt yet: it is {trial.state.value}"
        path = self._path(attempt.number)
        what = "has printed nothing" if path.exists() else "has no output here, if it printed any"
        return f"attempt {attempt.number} of trial {self._number} of {self._name} {what} ({path})"

    def _trial(self) -> TrialRecord:
        return find_trial(self._study.read(), self._number)

    def _find(self, trial: TrialRecord) -> AttemptRecord | None:
        """The attempt to show, or None when the trial has none yet."""
        if self._attempt is None:
            return trial.attempts[-1] if trial.attempts else None
        for attempt in trial.attempts:
            if attempt.number == self._attempt:
                return attempt
        raise StudyError(
            f"trial {trial.number} of {self._name} has no attempt {self._attempt}; it has {len(trial.attempts)}, "
            "numbered from 1"
        )

    def _path(self, attempt: int) -> Path:
        return AttemptFolder(self._home.attempt(self._name, self._number, attempt)).output


def output_tail(home: Home, study: str, number: int, attempt: int, most: int) -> list[str] | None:
    """The last lines that an attempt printed, as far as the file's last 256 KiB have them; None without a file."""
    path = AttemptFolder(home.attempt(study, number, attempt)).output
    try:
        size = path.stat().st_size
    except OSError:
        return None
    lines, _ = _lines(path, max(0, size - _TAIL_BYTES))
    return lines[-most:]


def _lines(path: Path, offset: int, *, whole: bool = False) -> tuple[list[str], int]:
    """The lines from a byte on, and where the next ones begin; with `whole`, a line without its end is left out."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            written = file.read()
    except FileNotFoundError:
        return [], offset
    if whole:
        written = written[: written.rfind(b"\n") + 1]
    lines = written.removesuffix(b"\n").split(b"\n") if written else []
    return [without_secrets(line.decode("utf-8", errors="replace")) for line in lines], offset + len(written)
