"""Which nodes attempts should stay away from, from how attempts ended there: a pure book-keeper, told the time.

A node is blamed for what another one might not have done: a lost worker, a broken device, a lack of host memory, an
exception. One such end says little, because it may be the trial's own fault. So a node is avoided after `_IN_A_ROW` of
them with nothing else between, from two trials or more. A broken device needs one. A node that is avoided gets another
chance after `_AVOIDED_SECONDS`, and twice as long every time after; any other end clears it.
"""

from collections import deque
from dataclasses import dataclass, field

from workers.protocol import FailureReason

_BLAMED = frozenset(
    {FailureReason.WORKER_LOST, FailureReason.DEVICE, FailureReason.HOST_OOM, FailureReason.EXCEPTION},
)
_IN_A_ROW = 3
_AVOIDED_SECONDS = 600.0
_MOST_SECONDS = 24 * 3600.0


@dataclass
class _Node:
    trials: deque[str] = field(default_factory=lambda: deque(maxlen=_IN_A_ROW))
    """Whose attempts failed there one after the other."""
    times: int = 0
    """How often it has been avoided."""
    until: float = 0.0
    why: str = ""


class NodeHealth:
    """Of all nodes, by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def ended(self, node: str, trial: str, reason: FailureReason | None, now: float) -> str | None:
        """An attempt of a trial ended there; why the node is avoided from now on, if so. `now` is in seconds."""
        if reason not in _BLAMED:
            self._nodes.pop(node, None)
            return None
        known = self._nodes.setdefault(node, _Node())
        known.trials.append(trial)
        if reason is FailureReason.DEVICE:
            why = "its device is broken"
        elif len(known.trials) == _IN_A_ROW and len(set(known.trials)) > 1:
            why = f"its last {_IN_A_ROW} attempts failed, of {len(set(known.trials))} trials"
        else:
            return None
        seconds = min(_AVOIDED_SECONDS * 2**known.times, _MOST_SECONDS)
        known.times += 1
        known.until, known.why = now + seconds, why
        known.trials.popleft()
        return f"{node} is avoided for {seconds / 60:g} min: {why}"

    def silent(self, node: str, seconds: float, now: float) -> None:
        """It does not answer: avoided for so long, whoever is to blame."""
        known = self._nodes.setdefault(node, _Node())
        if now + seconds > known.until:
            known.until, known.why = now + seconds, "it does not answer"

    def avoided(self, now: float) -> dict[str, str]:
        """Names of the nodes to stay away from now, each with the reason."""
        return {name: node.why for name, node in self._nodes.items() if now < node.until}
