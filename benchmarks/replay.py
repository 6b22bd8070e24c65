"""A study replayed from recorded curves: asynchronous workers in simulated time, the same on every run."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.recording import Costs, Recording
from orchestrator.pruning import Pruner, RungEntry


class Proposals(Protocol):
    """Which configuration is tried next."""

    def ask(self) -> int | None:
        """An index that was not given before, or None when all were."""
        ...

    def tell(self, index: int, costs: Costs | None) -> None:
        """What a configuration came to at its end; None when it was stopped."""
        ...


@dataclass(frozen=True, order=True)
class _Event:
    """A trial has seen `tokens` tokens."""

    time: float
    number: int
    tokens: int


@dataclass
class Replay:
    """One study; `run` gives how the completed trials' hypervolume grew with the tokens spent."""

    recording: Recording
    proposals: Proposals
    pruner: Pruner
    workers: int = 4
    completed: list[Costs] = field(default_factory=list)
    """Final costs of the trials that were trained to their end."""
    _configurations: list[int] = field(default_factory=list)
    """By trial number."""
    _started: dict[int, float] = field(default_factory=dict)
    """When each running trial began."""
    _entries: dict[int, list[RungEntry]] = field(default_factory=dict)
    _events: list[_Event] = field(default_factory=list)
    _ended_tokens: int = 0

    def run(self) -> list[tuple[float, float]]:
        """Tokens spent over the full study's, and the share of its hypervolume, after every completed trial.

        The last pair is the end of the study.
        """
        history = [(0.0, 0.0)]
        for _ in range(self.workers):
            self._start(0.0)
        while self._events:
            event = heapq.heappop(self._events)
            before = len(self.completed)
            spent = self._spent(event.time)
            self._handle(event)
            if len(self.completed) > before or not self._events:
                history.append((spent, self.recording.share(self.completed)))
        return history

    def _start(self, time: float) -> None:
        index = self.proposals.ask()
        if index is not None:
            number = len(self._configurations)
            self._configurations.append(index)
            self._started[number] = time
            self._schedule(number, 0)

    def _schedule(self, number: int, tokens: int) -> None:
        """The next rung after `tokens`, or the end."""
        total = self.recording.tokens_total
        later = next((rung for rung in self.pruner.rungs(total) if rung > tokens), total)
        time = self._started[number] + later * self.recording.seconds_per_token(self._configurations[number])
        heapq.heappush(self._events, _Event(time, number, later))

    def _handle(self, event: _Event) -> None:
        index = self._configurations[event.number]
        costs = self.recording.costs(index, event.tokens)
        if event.tokens == self.recording.tokens_total:
            self.completed.append(costs)
            self.proposals.tell(index, costs)
        elif self._goes_on(event, costs):
            self._schedule(event.number, event.tokens)
            return
        else:
            self.proposals.tell(index, None)
        del self._started[event.number]
        self._ended_tokens += event.tokens
        self._start(event.time)

    def _goes_on(self, event: _Event, costs: Costs) -> bool:
        entries = self._entries.setdefault(event.tokens, [])
        entries.append(RungEntry(number=event.number, costs=costs))
        return self.pruner.keeps(event.number, event.tokens, entries)

    def _spent(self, time: float) -> float:
        """Tokens of ended trials and of running ones so far, over those of the full study."""
        running = sum(
            (time - started) / self.recording.seconds_per_token(self._configurations[number])
            for number, started in self._started.items()
        )
        return (self._ended_tokens + running) / (len(self.recording.curves) * self.recording.tokens_total)


def share_at(history: Sequence[tuple[float, float]], spent: float) -> float:
    """The share of the hypervolume that was reached with so many tokens."""
    return max(share for tokens, share in history if tokens <= spent + 1e-9)
