"""Workers on two devices let benchmarks go first: all devices are let go of together, so that nobody waits for ever."""

import threading
from pathlib import Path

import pytest

from workers.device_lock import DeviceLock, SharedHold
from workers.parallel.giving_way import give_way, take_together
from workers.parallel.ranks import Alone

DEVICES = ("one", "two")


class Threads(Alone):
    """Ranks that are threads: what they say is brought together at a barrier."""

    def __init__(self, rank: int, said: list[tuple[bool, ...]], barrier: threading.Barrier) -> None:
        self.rank, self.count = rank, len(said)
        self._said, self._barrier = said, barrier

    def any_of(self, *said: bool) -> tuple[bool, ...]:
        self._said[self.rank] = said
        self._barrier.wait()
        found = tuple(any(words) for words in zip(*self._said, strict=True))
        self._barrier.wait()
        return found


@pytest.mark.timeout(60)
@pytest.mark.parametrize("first", [0, 1])
def test_who_gives_one_device_up_gives_up_the_other(tmp_path: Path, first: int) -> None:
    """A benchmark has one device for as long as another one needs to get the other: a trial between them must not."""
    steps, over = [0, 0], threading.Event()
    said, barrier = [(False,), (False,)], threading.Barrier(2)

    def trial(rank: int) -> None:
        ranks = Threads(rank, said, barrier)
        with DeviceLock(DEVICES[rank], tmp_path).shared(lambda hold: take_together(hold, ranks)) as hold:
            while step(hold, ranks):
                steps[rank] += 1

    def step(hold: SharedHold, ranks: Threads) -> bool:
        stop, wanted = ranks.any_of(over.is_set(), hold.is_wanted())
        if wanted:
            give_way(hold, ranks)
        ranks.any_of(True)  # the exchange of gradients
        return not stop

    threads = [threading.Thread(target=trial, args=(rank,), daemon=True) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    while min(steps) < 5:
        pass
    with (
        DeviceLock(DEVICES[first], tmp_path).exclusive(),
        DeviceLock(DEVICES[1 - first], tmp_path).exclusive(),
    ):
        before = list(steps)
    while min(steps) < max(before) + 5:
        pass
    over.set()
    for thread in threads:
        thread.join()
