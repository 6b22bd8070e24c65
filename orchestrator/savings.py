"""What a study did not spend on training: trials that the pruner stopped, points that were infeasible beforehand."""

from dataclasses import dataclass

from orchestrator.records import StudyRecord, TrialRecord, TrialState


@dataclass(frozen=True, kw_only=True)
class Savings:
    """Training tokens, of all finished trials that did not fail."""

    trained: int
    """What was trained."""
    stopped: int
    """Left untrained because the pruner stopped the trial."""
    infeasible: int
    """Left untrained because a constraint was broken before training."""
    stopped_trials: int
    infeasible_trials: int

    @property
    def share(self) -> float:
        """What was saved, of what everything would have cost; 0 when nothing has run."""
        saved = self.stopped + self.infeasible
        return saved / (saved + self.trained) if saved else 0.0


def savings(study: StudyRecord) -> Savings:
    """Count what each trial was meant to train on and what it did."""
    trained = stopped = infeasible = stopped_trials = infeasible_trials = 0
    for trial in study.trials:
        meant = int(trial.knobs.get("tokens") or 0)
        if trial.state is TrialState.COMPLETE and trial.forked_from is None:
            trained += meant
        elif trial.stopped_at is not None:
            trained += trial.stopped_at
            stopped += meant - trial.stopped_at
            stopped_trials += 1
        elif _never_trained(trial):
            infeasible += meant
            infeasible_trials += 1
    return Savings(
        trained=trained,
        stopped=stopped,
        infeasible=infeasible,
        stopped_trials=stopped_trials,
        infeasible_trials=infeasible_trials,
    )


def _never_trained(trial: TrialRecord) -> bool:
    return trial.state is TrialState.PRUNED and trial.stopped_at is None
