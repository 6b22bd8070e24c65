"""Where a trial is judged while it trains, and how: between the study's records and the pruner.

A configuration is judged by its first seed; further seeds run to the end, because a mean over different lengths means
nothing. A report judges a trial when it is the first one with an evaluation at or beyond a rung; rungs that a report
skips are passed, a rung that was judged before (by an earlier attempt) is not judged again.
"""

from collections.abc import Mapping

from orchestrator.configuration import Configuration
from orchestrator.constraints import parse_constraint, violations
from orchestrator.pruning.pruner import Pruner, make_pruner
from orchestrator.pruning.rung import RungEntry
from orchestrator.records import TrialRecord
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from workers.protocol import MetricReport


class Judge:
    """Judges the trials of one study."""

    def __init__(self, spec: StudySpec, study: Study) -> None:
        self._spec, self._study = spec, study
        self._pruner: Pruner = make_pruner(spec)
        self._objectives = [(objective.metric, objective.direction) for objective in spec.objectives]

    def rungs(self, trial: TrialRecord, configuration: Configuration) -> tuple[int, ...]:
        """Training tokens at which a trial is judged."""
        return self._pruner.rungs(configuration.train.tokens) if trial.seed == self._spec.seeds[0] else ()

    def stops(
        self, trial: TrialRecord, configuration: Configuration, report: MetricReport, known: Mapping[str, float]
    ) -> TrialRecord | None:
        """The trial's record as it was judged if this report ends it, else None; the verdict is written down."""
        rung = self._rung_of(trial, configuration, report)
        if rung is None:
            return None
        metrics = {**known, **report.metrics}
        entries = [
            *((other.number, _metrics_at(other, rung)) for other in self._study.judged_at(rung)),
            (trial.number, metrics),
        ]
        kept = self._pruner.keeps(trial.number, rung, self._entries(entries))
        judged = self._study.judge(trial.number, rung, metrics, kept=kept)
        return None if kept else judged

    def _rung_of(self, trial: TrialRecord, configuration: Configuration, report: MetricReport) -> int | None:
        """The highest rung that a report with an evaluation has reached, unless it or a higher one was judged."""
        if not any(metric in report.metrics for metric, _ in self._objectives):
            return None
        reached = [rung for rung in self.rungs(trial, configuration) if rung <= report.tokens]
        before = max((rung.tokens for rung in self._study.trial(trial.number).rungs), default=0)
        return reached[-1] if reached and reached[-1] > before else None

    def _entries(self, judged: list[tuple[int, Mapping[str, float]]]) -> list[RungEntry]:
        """Costs by the objectives that every entry knows at this rung."""
        shared = [
            (metric, 1 if direction == "minimize" else -1)
            for metric, direction in self._objectives
            if all(metric in metrics for _, metrics in judged)
        ]
        return [
            RungEntry(
                number=number,
                costs=tuple(sign * metrics[metric] for metric, sign in shared),
                violation=self._violation(metrics),
            )
            for number, metrics in judged
        ]

    def _violation(self, metrics: Mapping[str, float]) -> float:
        """By how much the known constraints are broken, each relative to its bound."""
        amounts = violations(self._spec.constraints, metrics)
        scales = {text: abs(parse_constraint(text).bound) or 1.0 for text in amounts}
        return sum(max(0.0, amount) / scales[text] for text, amount in amounts.items())


def _metrics_at(trial: TrialRecord, tokens: int) -> Mapping[str, float]:
    return next(rung.metrics for rung in trial.rungs if rung.tokens == tokens)
