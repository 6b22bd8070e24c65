"""Dominance, ranks and hypervolumes by definition, for small sets: what the pruners' library is compared with."""

from itertools import product

Costs = tuple[float, ...]


def dominates(first: Costs, second: Costs) -> bool:
    return all(a <= b for a, b in zip(first, second, strict=True)) and first != second


def ranks(rows: list[Costs]) -> list[int]:
    """Peel off what nothing left dominates, front by front."""
    found: dict[int, int] = {}
    level = 0
    while len(found) < len(rows):
        left = [row for row in range(len(rows)) if row not in found]
        front = [row for row in left if not any(dominates(rows[other], rows[row]) for other in left)]
        found |= dict.fromkeys(front, level)
        level += 1
    return [found[row] for row in range(len(rows))]


def hypervolume(rows: list[Costs], reference: float) -> float:
    """The sum over the cells of the grid that all coordinates span."""
    if not rows:
        return 0.0
    axes = [sorted({*column, reference}) for column in zip(*rows, strict=True)]
    volume = 0.0
    for cell in product(*(range(len(axis) - 1) for axis in axes)):
        corner = tuple(axis[index] for axis, index in zip(axes, cell, strict=True))
        if any(all(a <= b for a, b in zip(row, corner, strict=True)) for row in rows):
            size = 1.0
            for axis, index in zip(axes, cell, strict=True):
                size *= axis[index + 1] - axis[index]
            volume += size
    return volume
