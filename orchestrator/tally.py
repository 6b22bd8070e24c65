"""What is counted in the known configurations, kept up to date instead of counted anew for every proposal."""

from collections.abc import Sequence
from itertools import compress, count
from operator import is_not
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.proposer import Evaluation


class Tally:
    """Looks only at what differs from before; belongs to one thread."""

    def __init__(self) -> None:
        self.fingerprints: set[str] = set()
        """Of all configurations that are known."""
        self.results = 0
        """Configurations with values."""
        self._known: tuple[Evaluation, ...] = ()

    def follow(self, known: Sequence["Evaluation"]) -> None:
        """Count these, of which each is the same object as before where nothing changed."""
        before, self._known = self._known, tuple(known)
        both = min(len(before), len(known))
        changed = list(compress(count(), map(is_not, before, known)))
        for evaluation in [*map(before.__getitem__, changed), *before[both:]]:
            self.fingerprints.discard(evaluation.fingerprint)
            self.results -= evaluation.values is not None
        for evaluation in [*map(known.__getitem__, changed), *known[both:]]:
            self.fingerprints.add(evaluation.fingerprint)
            self.results += evaluation.values is not None
