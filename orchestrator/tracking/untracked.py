"""What a study's driver said and MLflow has not taken, read from the study's folder; MLflow is not asked."""

import json
from collections.abc import Iterable

from orchestrator.home import Home
from orchestrator.tracking.spool import waiting_lines


def untracked(home: Home, name: str) -> str | None:
    """In one line how much of a study waits to be tracked, or None. While its driver lives, what it just said does."""
    reports, runs, trials = 0, 0, set()
    for trial, is_report in _said(waiting_lines(home.spool(name))):
        reports += is_report
        runs += not is_report
        trials.add(trial)
    if not reports and not runs:
        return None
    counted = (
        f"{_count(reports, 'report')} and {_count(runs, 'change')} of state of {_count(len(trials - {None}), 'trial')}"
    )
    return f"{counted} are not in MLflow yet; `plt resume {name}` delivers them when MLflow works"


def _said(lines: Iterable[bytes]) -> Iterable[tuple[int | None, bool]]:
    """Of which trial a line is, and whether it is a report; damaged lines are left out."""
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if "trial" in data or "run" in data:
            yield data.get("trial", data.get("run")), "trial" in data


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
