"""The driver's picture of its study's trials, kept in step with the storage entry by entry.

The driver is the only writer of trials, so it need not read them all again to know what is waiting, what a
configuration has been run with, or what was judged at a rung: each question costs as much as its answer is long.
"""

import heapq
from collections.abc import Collection, Iterable

from orchestrator.records import TrialRecord, TrialState


class TrialTable:
    """All trials of one study, by number, configuration and rung."""

    def __init__(self, trials: Iterable[TrialRecord]) -> None:
        self._trials: dict[int, TrialRecord] = {}
        self._replicates: dict[str, list[int]] = {}
        self._waiting: list[int] = []
        self._rungs: dict[int, list[int]] = {}
        self._retried: set[int] = set()
        self.judgements = 0
        """How often the pruner has judged a trial."""
        self.ended_device_seconds = 0.0
        """What all ended attempts have cost together."""
        for trial in trials:
            self.put(trial)
        for tokens, numbers in self._rungs.items():
            orders = {number: _rung_order(self._trials[number], tokens) for number in numbers}
            numbers.sort(key=orders.__getitem__)

    def put(self, trial: TrialRecord) -> None:
        """Take over a trial as it now stands in the storage."""
        before = self._trials.get(trial.number)
        self._trials[trial.number] = trial
        if before is None:
            self._replicates.setdefault(trial.configuration, []).append(trial.number)
            if trial.retries is not None:
                self._retried.add(trial.retries)
        if trial.state is TrialState.WAITING and (before is None or before.state is not TrialState.WAITING):
            heapq.heappush(self._waiting, trial.number)
        known = set() if before is None else {rung.tokens for rung in before.rungs}
        for rung in trial.rungs:
            if rung.tokens not in known:
                self._rungs.setdefault(rung.tokens, []).append(trial.number)
                self.judgements += 1
        self.ended_device_seconds += _cost(trial) - (0.0 if before is None else _cost(before))

    def __getitem__(self, number: int) -> TrialRecord:
        return self._trials[number]

    def __len__(self) -> int:
        return len(self._trials)

    def all(self) -> tuple[TrialRecord, ...]:
        """Every trial by number."""
        return tuple(self._trials[number] for number in sorted(self._trials))

    def first_waiting(self) -> TrialRecord | None:
        """The WAITING trial of the lowest number, or None."""
        while self._waiting:
            trial = self._trials[self._waiting[0]]
            if trial.state is TrialState.WAITING:
                return trial
            heapq.heappop(self._waiting)
        return None

    @property
    def configurations(self) -> Collection[str]:
        """Fingerprints in the order in which they were asked."""
        return self._replicates.keys()

    def replicates(self, configuration: str) -> list[TrialRecord]:
        """A configuration's trials by number, without those that failed and were tried again as another trial."""
        return [self._trials[number] for number in self._replicates[configuration] if number not in self._retried]

    def judged_at(self, tokens: int) -> list[TrialRecord]:
        """Trials that the pruner has judged at a rung, in the order of their judgements."""
        return [self._trials[number] for number in self._rungs.get(tokens, ())]

    def failed(self) -> list[TrialRecord]:
        """FAIL trials that were not tried again as another trial."""
        return [trial for trial in self.all() if trial.state is TrialState.FAIL and trial.number not in self._retried]


def _cost(trial: TrialRecord) -> float:
    return sum(attempt.device_seconds for attempt in trial.attempts)


def _rung_order(trial: TrialRecord, tokens: int) -> int:
    return next(rung.order for rung in trial.rungs if rung.tokens == tokens)
