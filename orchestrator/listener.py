"""What the runner tells whoever watches it: progress bars, plain lines, or nobody."""

from typing import Protocol

from orchestrator.records import StudyRecord, TrialRecord
from workers.protocol import MetricReport


class Listener(Protocol):
    """Is told of everything that happens, in order; must not raise and must not block."""

    def study_started(self, study: StudyRecord) -> None:
        """The study was opened; finished trials are in the record."""

    def benchmark_started(self, trial: TrialRecord) -> None:
        """The trial's architecture is being measured."""

    def trial_started(self, trial: TrialRecord, attempt: int, steps: int) -> None:
        """An attempt begins; it will do this many optimizer steps."""

    def trial_reported(self, trial: TrialRecord, report: MetricReport) -> None:
        """An attempt sent metrics."""

    def trial_retried(self, trial: TrialRecord, message: str) -> None:
        """An attempt failed and the trial gets another."""

    def trial_ended(self, trial: TrialRecord) -> None:
        """The trial is finished, whatever its state."""

    def notice(self, text: str) -> None:
        """Something that a person should know, in one line."""

    def study_ended(self, study: StudyRecord) -> None:
        """Nothing more will happen."""


class Silence:
    """Listens to nothing."""

    def study_started(self, study: StudyRecord) -> None:
        """Say nothing."""

    def benchmark_started(self, trial: TrialRecord) -> None:
        """Say nothing."""

    def trial_started(self, trial: TrialRecord, attempt: int, steps: int) -> None:
        """Say nothing."""

    def trial_reported(self, trial: TrialRecord, report: MetricReport) -> None:
        """Say nothing."""

    def trial_retried(self, trial: TrialRecord, message: str) -> None:
        """Say nothing."""

    def trial_ended(self, trial: TrialRecord) -> None:
        """Say nothing."""

    def notice(self, text: str) -> None:
        """Say nothing."""

    def study_ended(self, study: StudyRecord) -> None:
        """Say nothing."""
