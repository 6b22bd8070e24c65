"""From a configuration to its task: the one list of what there is."""

from collections.abc import Callable, Mapping

from workers.config import DataConfig
from workers.tasks.addition import Addition
from workers.tasks.depo import Depo
from workers.tasks.igsm import Igsm
from workers.tasks.mano import Mano
from workers.tasks.phop import Phop
from workers.tasks.task import Task
from workers.tasks.tracking import Tracking
from workers.tasks.variables import Variables

_KINDS: Mapping[str, Callable[[DataConfig], Task]] = {
    kind.name: kind for kind in (Phop, Addition, Igsm, Variables, Tracking, Mano, Depo)
}


def make_task(data: DataConfig) -> Task:
    """The task that `data.corpus` names, which must be a single one."""
    return _KINDS[data.corpus](data)
