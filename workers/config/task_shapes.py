"""What a configuration must know of each generated task without making one: its knobs, token ids and room.

The tasks themselves are in `workers.tasks`, one file each. A task's **depth** is the number of steps that an answer
takes one after the other; the knob that sets it has its own name and unit:

| task | depth knob | one answer needs |
|---|---|---|
| `phop` | `hops` | so many hops back through the sequence |
| `addition` | `operands` | the sum of so many numbers |
| `igsm` | `operations` | a chain of so many sums mod 7 |
| `variables` | `copies` | so many copies followed back to a value |
| `tracking` | `products` | the product of so many group elements |
| `mano` | `operators` | so many operators mod 23 |
| `depo` | `successors` | the so-manyth successor in a cycle |
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.config.data_config import DataConfig

VALUES = 10
"""Variable assignment: values, the digits."""
IGSM_MODULUS, MANO_MODULUS = 7, 23
IGSM_TERMS = 3
"""Most terms of one symbolic i-GSM statement."""
IGSM_LETTERS, IGSM_LEVELS, IGSM_ENTITIES = 26, 4, 4
"""Letters that name entities, levels, entities per level; a parameter is an edge between neighbouring levels."""
IGSM_EDGES = (IGSM_LEVELS - 1) * IGSM_ENTITIES**2
IGSM_STATEMENT = 4 + 4 * IGSM_TERMS
"""Most tokens of a statement: `X#Y :=`, terms of three tokens joined by signs, and a full stop."""
DEPO_QUERIES = 4
"""Queries per sequence of Depo."""
DEPO_COUNT_DIGITS = 2
"""Digits that write down how many successors a query asks for."""
_GROUP = re.compile(r"z([2-9]|[1-9]\d)|s[3-5]|a[45]")


@dataclass(frozen=True, kw_only=True)
class TaskShape:
    """One task, as far as its configuration goes."""

    depth: str
    """The knob that holds its depths."""
    knobs: tuple[str, ...]
    """Its other knobs; `answer_delay` and `extrapolate` are everybody's."""
    smallest: int
    """The least depth that means something."""
    vocab_size: Callable[["DataConfig"], int]
    """Token ids that it uses."""
    slots: Callable[["DataConfig", int], int]
    """Slots that its longest sequence takes when this is the deepest one."""
    deepest: Callable[["DataConfig"], tuple[float, str]]
    """The largest depth that its other knobs allow, and what sets the limit, in words."""
    whole_sequences: bool = False
    """Whether the share of sequences without a wrong answer is a metric too."""


def group_order(group: str) -> int:
    """Number of elements of `zN`, `sN` or `aN`; a `ValueError` for any other name."""
    if not _GROUP.fullmatch(group):
        raise ValueError("must be z2 to z99, s3, s4, s5, a4 or a5")
    degree = int(group[1:])
    return {"z": degree, "s": math.factorial(degree), "a": math.factorial(degree) // 2}[group[0]]


def _phop_symbols(data: "DataConfig") -> tuple[float, str]:
    symbols = data.task_symbols
    return (symbols - 1) // 2, f"in {symbols} symbols"


TASKS: Mapping[str, TaskShape] = {
    "phop": TaskShape(
        depth="hops",
        knobs=("alphabet", "labels"),
        smallest=1,
        vocab_size=lambda data: data.alphabet + (2 if data.counts_hops else 1 if data.answer_delay else 0),
        slots=lambda data, _: data.answer_delay + 1,
        deepest=_phop_symbols,
    ),
    "addition": TaskShape(
        depth="operands",
        knobs=("digits",),
        smallest=2,
        vocab_size=lambda _: 13,
        slots=lambda data, n: n * (data.digits + 1) + data.answer_delay + len(str(n * (10**data.digits - 1))),
        deepest=lambda _: (1_000, "so that sums stay countable"),
    ),
    "igsm": TaskShape(
        depth="operations",
        knobs=("statements",),
        smallest=1,
        vocab_size=lambda _: IGSM_LETTERS + IGSM_MODULUS + 7,
        slots=lambda data, _: 6 + (data.statements - 1) * IGSM_STATEMENT + 4 + data.answer_delay,
        deepest=lambda data: (data.statements - 1, f"with {data.statements} statements"),
    ),
    "variables": TaskShape(
        depth="copies",
        knobs=("assignments",),
        smallest=0,
        vocab_size=lambda data: VALUES + data.assignments + 4,
        slots=lambda data, _: 4 * data.assignments + 3 + data.answer_delay,
        deepest=lambda data: (data.assignments - 1, f"with {data.assignments} assignments"),
    ),
    "tracking": TaskShape(
        depth="products",
        knobs=("group",),
        smallest=1,
        vocab_size=lambda data: group_order(data.group) + 1,
        slots=lambda data, n: n * (data.answer_delay + 1),
        deepest=lambda _: (math.inf, ""),
        whole_sequences=True,
    ),
    "mano": TaskShape(
        depth="operators",
        knobs=(),
        smallest=1,
        vocab_size=lambda _: MANO_MODULUS + 6,
        slots=lambda data, n: 2 * n + 4 + data.answer_delay,
        deepest=lambda _: (MANO_MODULUS - 1, "so that one residue names their number"),
    ),
    "depo": TaskShape(
        depth="successors",
        knobs=("nodes", "name_tokens"),
        smallest=1,
        vocab_size=lambda data: 2 * data.nodes + 10 + 3,
        slots=lambda data, _: (
            2 * data.nodes * data.name_tokens
            + DEPO_QUERIES * (2 + DEPO_COUNT_DIGITS + 2 * data.name_tokens + data.answer_delay)
        ),
        deepest=lambda data: (
            min(data.nodes - 1, 10**DEPO_COUNT_DIGITS - 1),
            f"in cycles of up to {data.nodes} nodes, and below {10**DEPO_COUNT_DIGITS}",
        ),
    ),
}
"""By the name that stands under `corpus`."""
