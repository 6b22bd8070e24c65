"""Which fault comes in which round, and on what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness import driver_faults
from harness.round import Round


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way to break a study."""

    strike: Callable[[Round], None]
    """Starts the study, breaks it, has it finished."""
    scenario: str = "plain"
    backend: str = "local"


FAULTS: Mapping[str, Fault] = {
    "driver-killed": Fault(strike=driver_faults.driver_killed),
    "driver-killed-pruned": Fault(strike=driver_faults.driver_killed, scenario="pruned"),
    "interrupted": Fault(strike=driver_faults.interrupted),
    "stopped": Fault(strike=driver_faults.stopped),
    "paused": Fault(strike=driver_faults.paused),
    "second-driver": Fault(strike=driver_faults.second_driver),
    "journal-cut": Fault(strike=driver_faults.journal_cut),
}
SHORT = ("driver-killed", "journal-cut", "second-driver", "stopped", "interrupted", "paused")
"""One pass of the short suite."""


def faults_of(rounds: int) -> list[str]:
    """The fault of every round."""
    return [SHORT[number % len(SHORT)] for number in range(rounds)]
