"""The seam to a tracking system.

A tracker is a projection of the study's storage, never the truth. Every call is idempotent by trial number: saying
the same thing twice leaves one run. The driver is its only caller; it says `start_study` first, holding the study's
lock, and never waits for a slow or absent server until `close`.
"""

from collections.abc import Sequence
from typing import Protocol

from orchestrator.records import StudyRecord, TrialRecord
from workers.protocol import MetricReport


class Tracker(Protocol):
    """One study's runs: a parent for the study, a child per trial."""

    def start_study(self, study: StudyRecord) -> None:
        """Find or make the experiment and its parent run, and store the resolved spec as an artifact."""

    def start_trial(self, trial: TrialRecord) -> None:
        """Find or make the trial's run with its parameters and tags, and mark it running."""

    def report(self, number: int, report: MetricReport) -> None:
        """Add metrics at a training step."""

    def finish_trial(self, trial: TrialRecord) -> None:
        """Write final metrics, tags and state of a finished trial and end its run."""

    def finish_study(self, study: StudyRecord) -> None:
        """Write the summary and end the parent run: FINISHED when complete, KILLED when interrupted, FAILED else."""

    def reconcile(self, study: StudyRecord, owned: Sequence[int] = ()) -> None:
        """Make the runs equal the record: missing runs made, finished trials' runs ended with their metrics, duplicates
        and runs of unknown trials ended as KILLED; only trials in `owned` may stay running."""

    def close(self) -> None:
        """Wait, within reason, until everything said has arrived; a ServiceError says what has not."""
