"""How much of the objective space a study has conquered, trial by trial.

Objectives are scaled to [0, 1] over all feasible, complete trials, and the volume is measured up to 1.1 in each, so
that units do not matter and the best in one objective counts even where it is the worst in another. A value that the
scale moves later changes earlier volumes too: the curve compares moments of one study, not studies.
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import compress

import moocore
import numpy as np

from orchestrator.pruning.order import REFERENCE, scaled
from orchestrator.records import StudyRecord, TrialRecord, TrialState


@dataclass(frozen=True, kw_only=True)
class HypervolumePoint:
    """The volume after so many finished trials."""

    finished: int
    at: datetime
    volume: float


def hypervolume_history(study: StudyRecord, most: int = 100) -> list[HypervolumePoint]:
    """At most so many moments, in order of time, the last one among them; empty while nothing feasible is complete.

    Infeasible, pruned and failed trials count as finished and conquer nothing.
    """
    ended = sorted((trial for trial in study.trials if trial.ended is not None and trial.state.finished), key=_end)
    conquers = [_able(trial) for trial in ended]
    if not any(conquers):
        return []
    signs = np.array([1.0 if objective.direction == "minimize" else -1.0 for objective in study.objectives])
    costs = scaled(np.array([trial.values for trial in compress(ended, conquers)], dtype=float) * signs)
    stops = _stops(len(ended), most)
    known = np.cumsum(conquers)[stops - 1]  # how many of the costs there are at each stop
    front, volume, seen = np.empty((0, len(signs))), 0.0, 0
    points = []
    for finished, count in zip(stops.tolist(), known.tolist(), strict=True):
        grown = _front(np.vstack([front, costs[seen:count]])) if count > seen else front
        if not np.array_equal(grown, front):
            volume = _volume(grown)
        front, seen = grown, count
        points.append(HypervolumePoint(finished=finished, at=_end(ended[finished - 1]), volume=volume))
    return points


def _front(costs: np.ndarray) -> np.ndarray:
    if costs.shape[1] == 1:
        return np.asarray(costs.min(axis=0, keepdims=True))
    return np.asarray(costs[moocore.is_nondominated(costs)])


def _volume(front: np.ndarray) -> float:
    if not len(front):
        return 0.0
    if front.shape[1] == 1:
        return float(REFERENCE - front.min())
    return float(moocore.hypervolume(front, ref=np.full(front.shape[1], REFERENCE)))


def _stops(count: int, most: int) -> np.ndarray:
    """Evenly spaced positions from 1 to `count`, ascending, both ends among them."""
    return np.unique(np.linspace(1, count, min(count, most)).round().astype(int))


def _able(trial: TrialRecord) -> bool:
    return trial.state is TrialState.COMPLETE and trial.feasible and trial.values is not None


def _end(trial: TrialRecord) -> datetime:
    assert trial.ended is not None
    return trial.ended
