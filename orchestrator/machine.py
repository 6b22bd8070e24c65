"""How busy this machine is."""

import os
import shutil
from dataclasses import dataclass

import psutil

from orchestrator.home import Home


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """One moment; sizes in bytes."""

    cores: int
    cpu_percent: float
    """Of all cores, since the last look of this process."""
    load: float
    """Mean number of processes that run or wait for a core, over the last minute."""
    memory: int
    memory_free: int
    disk_free: int
    """Where the home is, or would be."""


def machine_state() -> MachineState:
    """Look now; costs microseconds."""
    memory = psutil.virtual_memory()
    root = Home.from_environment().root
    there = next(path for path in (root, *root.parents) if path.exists())
    return MachineState(
        cores=len(os.sched_getaffinity(0)),
        cpu_percent=psutil.cpu_percent(),
        load=os.getloadavg()[0],
        memory=memory.total,
        memory_free=memory.available,
        disk_free=shutil.disk_usage(there).free,
    )
