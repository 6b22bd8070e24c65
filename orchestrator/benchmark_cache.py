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


@dataclass(frozen=True)
class Measurement:
    """One decode benchmark."""

    metrics: Mapping[str, float]
    info: Mapping[str, Any]


class BenchmarkCache:
    """The measurements of one home, for one kind of hardware."""

    def __init__(self, folder: Path, hardware: Mapping[str, Any], threads: int | None) -> None:
        self._folder = folder
        self._device = {"hardware": dict(hardware), "threads": threads}

    def get(self, architecture: str) -> Measurement | None:
        """The measurement, or None when it has to be made."""
        path = self._path(architecture)
        if not path.exists():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Measurement(metrics=stored["metrics"], info=stored["info"])

    def put(self, architecture: str, measurement: Measurement) -> None:
        """Keep a measurement."""
        text = json.dumps(
            {"metrics": dict(measurement.metrics), "info": dict(measurement.info), **self._device}, indent=1
        )
        write_aside(self._path(architecture), text)

    def _path(self, architecture: str) -> Path:
        return self._folder / f"{fingerprint([architecture, self._device])}.json"
