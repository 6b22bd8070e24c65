"""On which devices the latencies of a study's trials were measured. Those of different devices do not compare."""

from collections.abc import Mapping
from typing import Any

from orchestrator.records import StudyRecord, TrialState

MEASURED_ON = "latency_measured_on"
"""Of an attempt's info: the device that the architecture's decode benchmark ran on."""


def device_text(hardware: Mapping[str, Any]) -> str:
    """A device's type; CPUs of one name differ by how many cores were used."""
    name = str(hardware.get("device", "an unknown device"))
    return name if hardware.get("kind") == "cuda" or "cores" not in hardware else f"{name}, {hardware['cores']} cores"


def latency_devices(study: StudyRecord) -> dict[str, list[int]]:
    """Types of device, each with the complete trials whose latency was measured on it."""
    found: dict[str, list[int]] = {}
    for trial in study.trials:
        device = trial.attempts[-1].info.get(MEASURED_ON) if trial.attempts else None
        if device is not None and trial.state is TrialState.COMPLETE:
            found.setdefault(str(device), []).append(trial.number)
    return found


def mixed_devices(study: StudyRecord) -> str | None:
    """A warning where latencies of several types of device stand side by side, else None."""
    found = latency_devices(study)
    if len(found) < 2:
        return None
    where = "; ".join(f"{device} (trials {_few(numbers)})" for device, numbers in found.items())
    return (
        f"latency was measured on {len(found)} types of device, which do not compare: {where}; "
        "name one with resources.benchmark.accelerator in a new study"
    )


def _few(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
