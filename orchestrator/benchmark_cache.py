"""Decode measurements by architecture, grid and hardware: each is made once per home.

Latency and KV memory depend on shapes, not on weights, so one measurement serves every trial, seed and study that has
the architecture. A file per key, written aside and renamed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.home import write_aside
from workers.fingerprint import fingerprint

_IDENTITY = ("kind", "device", "cores", "torch", "decoding")
"""What of the hardware makes two latencies comparable; the threads are those that the study asked for."""


@dataclass(frozen=True)
class Measurement:
    """One decode benchmark."""

    metrics: Mapping[str, float]
    info: Mapping[str, Any]


class BenchmarkCache:
    """The measurements of one home, for one kind of hardware."""

    def __init__(self, folder: Path, hardware: Mapping[str, Any], threads: int | None) -> None:
        self._folder = folder
        self._hardware = hardware
        self._threads = threads

    def get(self, architecture: str) -> Measurement | None:
        """The measurement, or None when it has to be made."""
        path = self._path(architecture, self._hardware)
        if not path.exists():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Measurement(metrics=stored["metrics"], info=stored["info"])

    def put(self, architecture: str, measurement: Measurement) -> None:
        """Keep a measurement, under the hardware that it says it was made on."""
        text = json.dumps({"metrics": dict(measurement.metrics), "info": dict(measurement.info)}, indent=1)
        write_aside(self._path(architecture, measurement.info.get("hardware", self._hardware)), text)

    def _path(self, architecture: str, hardware: Mapping[str, Any]) -> Path:
        device = {name: hardware.get(name) for name in _IDENTITY}
        return self._folder / f"{fingerprint([architecture, device, self._threads])}.json"
