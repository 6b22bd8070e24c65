"""Which fault comes in which round, and on what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness import driver_faults, ray_faults, tracking_faults
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
    "database-locked": Fault(strike=tracking_faults.database_locked),
    "server-frozen": Fault(strike=tracking_faults.server_frozen),
    "server-killed": Fault(strike=tracking_faults.server_killed),
    "disk-full": Fault(strike=tracking_faults.disk_full),
    "ray-paused": Fault(strike=driver_faults.paused, backend="ray"),
    "worker-killed": Fault(strike=ray_faults.worker_killed, backend="ray"),
    "worker-frozen": Fault(strike=ray_faults.worker_frozen, backend="ray"),
    "raylet-killed": Fault(strike=ray_faults.raylet_killed, backend="ray"),
    "ray-driver-killed": Fault(strike=ray_faults.driver_killed, backend="ray"),
    "node-lost": Fault(strike=ray_faults.node_lost, backend="ray"),
}
SHORT = (
    *("driver-killed", "worker-killed", "journal-cut", "server-frozen", "second-driver", "disk-full", "stopped"),
    *("driver-killed-pruned", "worker-frozen", "interrupted", "database-locked", "driver-killed", "raylet-killed"),
    *("journal-cut", "paused", "driver-killed", "node-lost", "disk-full", "journal-cut", "driver-killed-pruned"),
    *("ray-driver-killed", "ray-paused"),
)
"""One pass of the short suite: every fault but those that take long, the likely ones several times."""
LONG = (*SHORT, "server-killed")
"""Again and again in a longer one."""


def faults_of(rounds: int) -> list[str]:
    """The fault of every round."""
    plan = SHORT if rounds <= len(SHORT) else LONG
    return [plan[number % len(plan)] for number in range(rounds)]
