"""Finds out why a worker died: did the kernel kill anything for want of memory on its node, and does the node live?"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.backends import ray_cluster
from orchestrator.backends.ray_death import describe_death, may_be_for_memory
from workers.actor import oom_kills
from workers.protocol import TrialOutcome

_SECONDS = 5.0
"""An answer that takes longer is done without."""


class Inquest:
    """Into the end of one attempt. The node is asked once, beside everything else."""

    def __init__(
        self, attempt_id: str, error: RayError, node_id: str, kills_before: int | None, now: float, who: str = ""
    ) -> None:
        """`who` stands before the reason: which of several workers died. Without a count of earlier kills on the node
        (`kills_before`) it is not asked."""
        self.attempt_id, self._who = attempt_id, who
        self._error, self.node_id, self._kills_before = error, node_id, kills_before
        self._until = now + _SECONDS
        self._answer: Any = None
        if node_id and kills_before is not None and may_be_for_memory(error):
            where = NodeAffinitySchedulingStrategy(node_id, soft=False)
            task = ray.remote(num_cpus=0, max_retries=0)(oom_kills)
            self._answer = task.options(scheduling_strategy=where).remote()

    def waits_for(self) -> Iterable[Any]:
        """What `ray.wait` should look at."""
        return [] if self._answer is None else [self._answer]

    def outcome(self, ready: set[Any], now: float) -> TrialOutcome | None:
        """The attempt's outcome once everything is known that can be, else None."""
        if self._answer is not None and self._answer not in ready and now < self._until:
            return None
        outcome = describe_death(
            self._error,
            node=ray_cluster.node_name(self.node_id) if self.node_id else "an unknown node",
            node_died=bool(self.node_id) and ray_cluster.node_is_dead(self.node_id),
            oom_killed=self._answer in ready and self._more_kills(),
        )
        assert outcome.failure is not None
        return replace(outcome, failure=replace(outcome.failure, message=self._who + outcome.failure.message))

    def _more_kills(self) -> bool:
        try:
            return self._kills_before is not None and int(ray.get(self._answer, timeout=0)) > self._kills_before
        except RayError:
            return False  # the node is gone, too
