"""What a simulated cluster consists of and how it misbehaves: plain data."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine."""

    name: str
    devices: int
    tokens_per_second: float
    """How fast each of its devices trains."""
    seconds_between_failures: float | None = None
    """Mean of an exponential distribution; None never fails. What runs there is lost, but for its checkpoints."""
    seconds_between_preemptions: float | None = None
    """The same for being taken away with notice: what runs there writes a checkpoint first."""
    repair_seconds: float = 600.0
    """How long it is away after either."""


def even_fleet(nodes: int, devices: int, tokens_per_second: float) -> tuple[Node, ...]:
    """Equal nodes that never fail."""
    return tuple(
        Node(name=f"node-{index}", devices=devices, tokens_per_second=tokens_per_second) for index in range(nodes)
    )


@dataclass
class NodeState:
    """A node at one moment."""

    node: Node
    free: int
    up: bool = True
    ended_well: int = 0
    """Attempts that ended here with a result."""
    lost: int = 0
    """Attempts that were lost with it, preemptions left out."""
    lives: int = 1
    """How often it has come up; what was to befall an earlier life does not happen."""


def place_first(states: Sequence[NodeState]) -> NodeState:
    """The first node with a free device."""
    return states[0]


def place_fastest(states: Sequence[NodeState]) -> NodeState:
    """The fastest device that is free."""
    return max(states, key=lambda state: state.node.tokens_per_second)


def place_reliable(states: Sequence[NodeState]) -> NodeState:
    """The node that loses the smallest share of what runs on it, unknown ones taken to lose every tenth attempt."""
    return min(states, key=lambda state: (state.lost + 0.1) / (state.lost + state.ended_well + 1.0))
