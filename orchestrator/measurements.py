"""Decode measurements on the way: one per architecture, whoever waits for it."""

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.benchmark_cache import BenchmarkCache, Measurement
from orchestrator.configuration import Configuration
from orchestrator.home import Home
from orchestrator.latency_devices import device_text
from workers.protocol import BenchmarkRequest, FailureReason, TrialOutcome

_PREFIX = "benchmark-"


class Measurements:
    """Which architectures are measured, being measured, and awaited by which trials."""

    def __init__(self, home: Home, hardware: Callable[[], Mapping[str, Any]], threads: int | None) -> None:
        """`hardware` is asked when the first architecture comes; `threads` is what a measurement computes with."""
        self._home, self._hardware, self._threads = home, hardware, threads
        self._cache: BenchmarkCache | None = None
        self._waiting: dict[str, list[int]] = {}
        self._requests: dict[str, BenchmarkRequest] = {}
        self._failed: dict[str, list[FailureReason]] = {}

    def known(self, architecture: str) -> Measurement | None:
        """What was measured of it on this hardware."""
        return self._benchmarks.get(architecture)

    def wait_for(self, number: int, configuration: Configuration) -> BenchmarkRequest | None:
        """Let a trial wait for its architecture; the request to submit if nobody waits for it yet."""
        architecture = configuration.architecture
        assert architecture is not None
        assert configuration.benchmark_model is not None
        assert configuration.benchmark is not None
        if architecture in self._waiting:
            self._waiting[architecture].append(number)
            return None
        self._waiting[architecture], self._failed[architecture] = [number], []
        self._requests[architecture] = BenchmarkRequest(
            attempt_id=_PREFIX + architecture,
            model=configuration.benchmark_model,
            benchmark=configuration.benchmark,
            threads=self._threads,
        )
        return self._requests[architecture]

    def under_way(self) -> list[str]:
        """Attempt ids of the measurements that run."""
        return [_PREFIX + architecture for architecture in self._waiting]

    def failed(self, attempt_id: str, reason: FailureReason) -> tuple[list[FailureReason], BenchmarkRequest]:
        """Remember a failure; all reasons so far, and the request to try again."""
        architecture = attempt_id.removeprefix(_PREFIX)
        self._failed[architecture].append(reason)
        return self._failed[architecture], self._requests[architecture]

    def elsewhere(self, measurement: Measurement) -> str | None:
        """That it was made on another type of device than the first one, in one line; None where it was not."""
        here, there = device_text(self._hardware()), device_text(measurement.info.get("hardware", self._hardware()))
        if here == there:
            return None
        remedy = "name one with resources.benchmark.accelerator"
        return f"a latency was measured on {there}, others on {here}: they do not compare; {remedy}"

    def ended(self, attempt_id: str, outcome: TrialOutcome) -> list[int]:
        """Keep what was measured, unless it failed; the trials that waited for it."""
        architecture = attempt_id.removeprefix(_PREFIX)
        if outcome.failure is None:
            self._benchmarks.put(architecture, Measurement(metrics=outcome.metrics, info=outcome.info))
        del self._requests[architecture]
        return self._waiting.pop(architecture)

    def forget(self) -> None:
        """Nobody waits for anything any more."""
        self._waiting.clear()
        self._requests.clear()

    @property
    def _benchmarks(self) -> BenchmarkCache:
        if self._cache is None:
            self._cache = BenchmarkCache(self._home.benchmarks, self._hardware(), self._threads)
        return self._cache
