"""The pruner `none`: every trial is trained to its end."""

from collections.abc import Sequence

from orchestrator.pruning.rung import RungEntry


class NoPruner:
    """Judges nowhere."""

    def rungs(self, tokens_total: int) -> tuple[int, ...]:  # noqa: ARG002
        """None at all."""
        return ()

    def keeps(self, number: int, rung: int, entries: Sequence[RungEntry]) -> bool:  # noqa: ARG002
        """Always."""
        return True
