"""Several workers give way to benchmarks together.

A worker that waited for its device while another one, waiting for it, held a device that somebody else waits for would
close a circle. So the workers of a trial hold all of their devices or none: when one is wanted all are let go, and each
is only tried for until they can be had at once.
"""

import time
from collections.abc import Callable

from workers.device_lock import SharedHold
from workers.parallel.ranks import Ranks

_TRY_SECONDS = 0.02


def take_together(hold: SharedHold, ranks: Ranks, wait: Callable[[float], None] = time.sleep) -> None:
    """Return once every worker holds its device; one worker alone simply waits for its own."""
    if ranks.count == 1:
        hold.acquire()
        return
    while True:
        held = hold.try_acquire()
        (somebody_waits,) = ranks.any_of(not held)
        if not somebody_waits:
            return
        if held:
            hold.release()
        wait(_TRY_SECONDS)


def give_way(hold: SharedHold, ranks: Ranks) -> None:
    """Let every device go, and return once every worker has its own again."""
    hold.release()
    take_together(hold, ranks)
