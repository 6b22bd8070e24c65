"""Several warm Ray actors that carry out one attempt together, in one placement group: all of them or none.

To the backend it is one worker: rank 0's reports are its reports, and its outcome is that of all of them. A member that
dies, fails or falls silent ends the attempt for all. Who has only lost the others is not believed before the grace is
over: the one that was lost says why, or Ray does.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from ray.exceptions import ActorUnavailableError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from orchestrator.backends import ray_cluster
from orchestrator.backends.placement import Placement
from orchestrator.backends.ray_death import describe_death, failed
from orchestrator.backends.ray_worker import Death, Item, RayWorker, make_actor
from workers.gang_outcome import gang_outcome, is_known
from workers.protocol import FailureReason, MetricReport, Request, TrialOutcome, TrialRequest


class RayGang:
    """A handle on the actors of one group. Nothing here waits."""

    def __init__(
        self,
        placement: Placement,
        arguments: tuple[Any, ...],
        lease: float,
        grace: float,
        excluded: Collection[str] = (),
    ) -> None:
        """None of them starts on a node that is `excluded`, by id."""
        self.placement, self._grace = placement, grace
        labels = ray_cluster.elsewhere(placement.labels, excluded)
        self._group = placement_group(
            [placement.bundle() for _ in range(placement.workers)],
            strategy=placement.strategy.upper(),
            bundle_label_selector=[labels for _ in range(placement.workers)] if labels else None,
        )
        self._members = [
            RayWorker(make_actor(placement, arguments, self._place(rank)), placement, lease)
            for rank in range(placement.workers)
        ]
        self.attempt_id: str | None = None
        self.stop_by: float | None = None
        self.attempts = 0
        self.starting = 0.0
        self.node_id, self.who = "", ""
        self.oom_kills: int | None = None
        """Of the member that died."""
        self._request: TrialRequest | None = None
        """What is still to be handed out."""
        self._outcomes: dict[int, TrialOutcome] = {}
        self._ended: set[int] = set()
        """Ranks whose stream is at its end."""
        self._since_failure = 0.0

    def start(self, request: Request) -> None:
        """Have them run a request as soon as all of them are there."""
        assert isinstance(request, TrialRequest)
        self.attempt_id, self.stop_by, self._request = request.attempt_id, None, request
        self.attempts += 1
        self.starting = 0.0
        self._hand_out()

    def stop(self, by: float) -> None:
        """Ask all of them to end their attempt; whoever holds this kills them after `by`."""
        self.stop_by = by if self.stop_by is None else self.stop_by
        self._request = None
        for member in self._members:
            if member.attempt_id is not None:
                member.stop(by)

    def leave(self) -> None:
        """Ask all of them to save a state together and end: one's machine is being taken away."""
        for member in self._members:
            member.leave()

    def end(self) -> None:
        """Their attempt is over."""
        self.attempt_id = self.stop_by = self._request = None
        self._outcomes, self._ended, self._since_failure = {}, set(), 0.0
        for member in self._members:
            if member.attempt_id is not None:
                member.end()

    def kill(self) -> None:
        """End the processes and give their places back."""
        self.end()
        for member in self._members:
            member.kill()
        remove_placement_group(self._group)

    @property
    def answered(self) -> bool:
        """Whether all of them have ever given a sign of life."""
        return all(member.answered for member in self._members)

    @property
    def places(self) -> list[str]:
        """The nodes they run on, by id, as far as known."""
        return [place for member in self._members for place in member.places]

    def locate(self) -> list[str]:
        """The same, asked of the cluster where they ended before they could say."""
        return [place for member in self._members for place in member.locate()]

    @property
    def silent_places(self) -> list[str]:
        """The nodes of those that have been silent for too long."""
        return [place for member in self._members for place in member.silent_places]

    @property
    def idle(self) -> bool:
        """Whether they can take a request now."""
        return self.attempt_id is None and all(member.idle for member in self._members)

    @property
    def grown_bytes(self) -> int:
        """By how much the memory of any has grown."""
        return max(member.grown_bytes for member in self._members)

    @property
    def cut_off(self) -> RayError | None:
        """Set once one of them cannot be followed any more."""
        return next((member.cut_off for member in self._members if member.cut_off is not None), None)

    @property
    def lease_is_over(self) -> bool:
        """Whether any has been silent for too long."""
        return any(member.lease_is_over for member in self._members)

    @property
    def overdue(self) -> bool:
        """Whether they have waited for their places for too long."""
        return not self.answered and self.starting >= self.placement.timeout

    def watch(self, seconds: float) -> None:
        """So much time has passed since the last call."""
        if self.attempt_id is not None and not self.answered:
            self.starting += seconds
        if any(outcome.failure is not None for outcome in self._outcomes.values()):
            self._since_failure += seconds
        for member in self._members:
            member.watch(seconds)

    def waits_for(self) -> Iterable[Any]:
        """What `ray.wait` should look at."""
        return [each for member in self._members for each in member.waits_for()]

    def next_item(self, ready: set[Any]) -> Item:
        """Rank 0's next report, or the outcome of all, if there is one, else None.

        Raises `StopIteration` when all have ended without an outcome, `Death` when one of them is dead.
        """
        for rank in reversed(range(len(self._members))):  # reports of rank 0 come after what others say
            item = self._item_of(rank, ready)
            if isinstance(item, MetricReport) and rank == 0:
                return item
            if isinstance(item, TrialOutcome):
                self._outcomes[rank] = item
                self._members[rank].end()
        if self.attempt_id is None:
            return None
        over = self._outcomes.keys() | self._ended
        if self.stop_by is not None and len(over) == len(self._members):
            raise StopIteration
        if is_known(self._outcomes, len(self._members)) or self._since_failure >= self._grace:
            return gang_outcome(self._outcomes)
        return None

    def hear(self, ready: set[Any]) -> bool:
        """Take in signs of life that are ready, and say whether there were any; `Death` as for one actor."""
        heard = [self._hear_of(rank, ready) for rank in range(len(self._members))]
        self._hand_out()
        return any(heard)

    def _hand_out(self) -> None:
        """Send each its request, once rank 0's machine is known."""
        if self._request is None or not self.answered:
            return
        request, self._request = self._request, None
        assert request.gang is not None
        host = ray_cluster.meeting_address([member.node_id for member in self._members])
        for rank, member in enumerate(self._members):
            member.start(replace(request, gang=replace(request.gang, rank=rank, host=host)))

    def _item_of(self, rank: int, ready: set[Any]) -> Item:
        member = self._members[rank]
        if rank in self._ended or rank in self._outcomes:
            return None
        try:
            return member.next_item(ready)
        except StopIteration:
            self._ended.add(rank)
            member.end()
            if self.stop_by is None:
                return failed(FailureReason.EXCEPTION, "the worker ended without an outcome")
            return None
        except RayTaskError as error:
            return describe_death(error, node="", node_died=False, oom_killed=False)
        except Death as death:
            self._mourn(rank, death)
            return None

    def _hear_of(self, rank: int, ready: set[Any]) -> bool:
        try:
            return self._members[rank].hear(ready)
        except Death as death:
            self._mourn(rank, death)
            return False

    def _mourn(self, rank: int, death: Death) -> None:
        """One that cannot be reached is asked again until its lease is over; one that is dead is said to be."""
        member = self._members[rank]
        if isinstance(death.error, ActorUnavailableError) and self.attempt_id is not None:
            member.cut(death.error)
            return
        member.locate()
        self.node_id, self.oom_kills, self.who = member.node_id, member.oom_kills, f"rank {rank}: "
        raise death

    def _place(self, rank: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=rank)
