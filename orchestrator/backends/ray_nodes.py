"""The cluster's nodes as places for attempts: how many fit, and which nodes to stay away from.

Nodes are left out that are being drained (`ray drain-node`, an autoscaler, a spot instance's notice), that keep failing
(`orchestrator.backends.node_health`), or that do not answer. If only such nodes are left, those that keep failing are
used nevertheless: a study never waits for a node to be forgiven.
"""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.backends import ray_cluster
from orchestrator.backends.node_health import NodeHealth
from orchestrator.backends.placement import Placement
from workers.protocol import FailureReason, TrialOutcome

_SILENT_SECONDS = 60.0
"""By then Ray itself has declared a node dead that cannot be reached, or it can be reached."""


class RayNodes:
    """As they were at the last `look`."""

    def __init__(self) -> None:
        self._health = NodeHealth()
        self._now = 0.0
        self.draining: frozenset[str] = frozenset()
        """Ids of nodes that are being taken away."""
        self._taken_away: set[str] = set()
        """All that ever were."""
        self._avoided: dict[str, str] = {}
        """Ids of nodes that attempts should stay away from, each with a reason."""

    def look(self, now: float) -> None:
        """Ask the cluster; `now` is in seconds."""
        self._now = now
        self.draining = ray_cluster.draining()
        self._taken_away |= self.draining
        avoided = self._health.avoided(now)
        names = ray_cluster.living_names() if avoided else {}
        self._avoided = {node_id: f"{name}: {avoided[name]}" for node_id, name in names.items() if name in avoided}

    def slots(self, placement: Placement) -> int:
        """How many attempts of this kind there is room for."""
        return ray_cluster.slots(placement, self.excluded(placement))

    def excluded(self, placement: Placement) -> frozenset[str]:
        """Ids of the nodes on which no attempt of this kind should start."""
        everything = self.draining | self._avoided.keys()
        return everything if ray_cluster.slots(placement, everything) else self.draining

    def shuns(self, node_id: str, placement: Placement) -> bool:
        """Whether an idle actor there should go."""
        return node_id in self.excluded(placement) if self.draining or self._avoided else False

    def avoided(self) -> str | None:
        """Which nodes are avoided and why, in words."""
        draining = [f"{ray_cluster.node_name(node_id)}: it is being taken away" for node_id in sorted(self.draining)]
        return "; ".join([*draining, *self._avoided.values()]) or None

    def died(self, node_id: str, failed: TrialOutcome) -> TrialOutcome:
        """A worker's death on a node that was being taken away is nobody's fault."""
        if node_id not in self._taken_away or failed.failure is None:
            return failed
        if failed.failure.reason is not FailureReason.WORKER_LOST:
            return failed
        message = f"the machine was taken away before a state could be saved: {failed.failure.message}"
        return replace(failed, failure=replace(failed.failure, reason=FailureReason.PREEMPTED, message=message))

    def silent(self, node_id: str) -> None:
        """A worker there was given up because nothing was heard of it."""
        if node_id:
            self._health.silent(ray_cluster.node_name(node_id), _SILENT_SECONDS, self._now)
            self.look(self._now)

    def ended(self, places: Sequence[str], trial: str, outcome: TrialOutcome) -> TrialOutcome:
        """The outcome with the names of the nodes; one that failed alone on a node is held against it."""
        names = [ray_cluster.node_name(node_id) for node_id in dict.fromkeys(places) if node_id]
        if not names:
            return outcome
        noted = replace(outcome, info={**outcome.info, "node": ", ".join(names)})
        if len(names) > 1:
            return noted
        reason = None if outcome.failure is None else outcome.failure.reason
        blamed = self._health.ended(names[0], trial, reason, self._now)
        if blamed is None or noted.failure is None:
            return noted
        self.look(self._now)
        return replace(noted, failure=replace(noted.failure, message=f"{noted.failure.message}; {blamed}"))
