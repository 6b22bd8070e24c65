"""Means of everything that is measured, gathered batch by batch; memory grows with what is asked, not with the data."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from workers.protocol import LoopValue

Place = tuple[str, int, int | None, int | None, int | None]
"""Name, loop, layer, head and item, as in `LoopValue`."""


@dataclass
class Means:
    """Sums and counts by place."""

    _sums: dict[Place, tuple[float, float]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        loop: int,
        total: float,
        count: float,
        *,
        layer: int | None = None,
        head: int | None = None,
        item: int | None = None,
    ) -> None:
        """Add `count` observations whose sum is `total`; layer and head count from 0, loops from 1."""
        place = (name, loop, layer, head, item)
        before = self._sums.get(place, (0.0, 0.0))
        self._sums[place] = (before[0] + total, before[1] + count)

    def values(self) -> Iterator[LoopValue]:
        """The mean at every place that something was counted for, in the order in which places came up."""
        for place, (total, count) in self._sums.items():
            if count > 0:
                yield LoopValue(*place, total / count)
