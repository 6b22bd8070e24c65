"""Which fault comes in which round, and on what."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness import database_faults, driver_faults, ray_faults, tracking_faults
from harness.round import Round


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way to break a study."""

    strike: Callable[[Round], None]
    """Starts the study, breaks it, has it finished."""
    scenario: str = "plain"
    backend: str = "local"
    own_database: bool = False
    """Whether it kills the database that the study is kept in."""


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
    "database-killed": Fault(strike=database_faults.database_killed, own_database=True),
    "database-frozen": Fault(strike=database_faults.database_frozen, own_database=True),
    "team-driver-killed": Fault(strike=driver_faults.driver_killed),
}
SHORT = (
    *("driver-killed", "worker-killed", "journal-cut", "server-frozen", "second-driver", "disk-full", "stopped"),
    *("driver-killed-pruned", "worker-frozen", "interrupted", "database-locked", "driver-killed", "raylet-killed"),
    *("journal-cut", "paused", "driver-killed", "node-lost", "disk-full", "journal-cut", "driver-killed-pruned"),
    *("ray-driver-killed", "ray-paused", "database-killed", "team-driver-killed"),
)
"""One pass of the short suite: every fault but those that take long, the likely ones several times."""
LONG = (*SHORT, "server-killed")
"""Again and again in a longer one."""


_OF_FILES = frozenset({"journal-cut", "disk-full"})
"""Faults that need the journal to be a file."""
_TEAM = ("database-killed", "database-frozen", "database-killed")
"""Faults of a database, in every pass of a session that keeps all studies there."""


def in_database(name: str) -> bool:
    """Whether the study of this fault is kept in PostgreSQL: those named so, or every one under PLT_FAULT_STORAGE."""
    return _team() or name.startswith(("database-killed", "database-frozen", "team-"))


def _team() -> bool:
    return os.environ.get("PLT_FAULT_STORAGE") == "postgres"


def faults_of(rounds: int) -> list[str]:
    """The fault of every round."""
    plan: tuple[str, ...] = SHORT if rounds <= len(SHORT) else LONG
    if _team():
        plan = (*_TEAM, *(name for name in plan if name not in _OF_FILES))
    return [plan[number % len(plan)] for number in range(rounds)]
