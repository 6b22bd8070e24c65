"""The table of a trial's loop diagnostics: kept as CSV beside its attempts, read back as rows and as maps.

Columns `name,loop,layer,head,item,value`; layer, head and item are empty where a value is a mean over them. What the
names mean is said in `workers.evaluation.diagnostics.diagnosis`.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from workers.protocol import LoopValue


def to_csv(values: Iterable[LoopValue]) -> str:
    """The table as text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(LoopValue._fields)
    writer.writerows(["" if cell is None else cell for cell in value] for value in values)
    return text.getvalue()


def from_csv(text: str) -> list[LoopValue]:
    """The rows of a table; a ValueError when it is none."""
    header, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if tuple(header) != LoopValue._fields:
        raise ValueError(f"no table of loop diagnostics: its columns are {header}")
    return [
        LoopValue(name, int(loop), _number(layer), _number(head), _number(item), float(value))
        for name, loop, layer, head, item, value in rows
    ]


def _number(cell: str) -> int | None:
    return int(cell) if cell else None


def read_text(path: Path) -> str | None:
    """The file's text, or None when there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def read_table(path: Path) -> list[LoopValue]:
    """The rows of a trial's table, none when it has none."""
    text = read_text(path)
    return [] if text is None else from_csv(text)


def by_layer_and_head(values: Iterable[LoopValue], name: str, loop: int) -> list[list[float]]:
    """One measure of one loop as a map, rows layers and columns heads; empty when it was not measured by head."""
    found = {
        (value.layer, value.head): value.value
        for value in values
        if value.name == name and value.loop == loop and value.layer is not None and value.head is not None
    }
    layers, heads = sorted({layer for layer, _ in found}), sorted({head for _, head in found})
    return [[found[layer, head] for head in heads] for layer in layers]


def by_item(values: Iterable[LoopValue], name: str, loop: int) -> dict[int, float]:
    """One measure of one loop by position in the evaluation set, so that two trials can be compared item by item."""
    return {
        value.item: value.value
        for value in values
        if value.name == name and value.loop == loop and value.item is not None
    }


def mean_by_item(tables: Sequence[Iterable[LoopValue]], name: str) -> dict[int, float]:
    """The last loop's value of each item, averaged over trials that have it: replicates of one configuration."""
    sums: dict[int, list[float]] = {}
    for table in tables:
        rows = list(table)
        last = max((value.loop for value in rows), default=0)
        for item, value in by_item(rows, name, last).items():
            sums.setdefault(item, []).append(value)
    return {item: sum(values) / len(values) for item, values in sorted(sums.items()) if len(values) == len(tables)}
