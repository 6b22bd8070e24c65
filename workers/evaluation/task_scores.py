"""Exact match on a generated task, by depth, beside what the most frequent answer would score.

An answer is right when every one of its tokens is predicted. `tasks/NAME/accuracy` counts the depths that are trained
on, `tasks/NAME/extrapolation/accuracy` the deeper ones, `tasks/NAME/depthD/accuracy` depth D, when there are several.
`.../majority` beside each is the score of always giving the most frequent of the same answers.
"""

import numpy as np
from numpy.typing import NDArray

from workers.data import IGNORED, EvaluationSet

NO_ANSWER = -1


def task_scores(data: EvaluationSet, predictions: NDArray[np.int64]) -> dict[str, float]:
    """Metrics from the predicted ids (E, S)."""
    rows, slots = np.nonzero(_answers(data) != NO_ANSWER)
    right, texts, first = _by_answer(data, predictions, rows, slots)
    prefix = f"tasks/{data.task}"
    if data.depths is None:
        return _shares(prefix, right, texts)
    depths = data.depths[rows, slots][first]
    trained = depths <= (depths.max() if data.deepest_trained is None else data.deepest_trained)
    metrics = _shares(prefix, right[trained], texts[trained])
    if not trained.all():
        metrics |= _shares(f"{prefix}/extrapolation", right[~trained], texts[~trained])
    found = np.unique(depths)
    for depth in found if len(found) > 1 else ():
        metrics |= _shares(f"{prefix}/depth{depth}", right[depths == depth], texts[depths == depth])
    if data.whole_sequences:
        wrong = np.unique(rows[first][~right & trained])
        metrics[f"{prefix}/sequences/accuracy"] = 1 - len(wrong) / len(np.unique(rows[first][trained]))
    return metrics


def _answers(data: EvaluationSet) -> NDArray[np.int64]:
    """Which answer of its sequence a label belongs to (E, S)."""
    if data.answers is not None:
        return data.answers
    answers = np.where(data.targets == IGNORED, NO_ANSWER, np.arange(data.targets.shape[1]))
    answers[:, : answers.shape[1] // 2] = NO_ANSWER
    return answers


def _by_answer(
    data: EvaluationSet, predictions: NDArray[np.int64], rows: NDArray[np.intp], slots: NDArray[np.intp]
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.intp]]:
    """Of every answer: whether all of it is right, its tokens (padded), and the first of its scored slots."""
    keys = rows * data.targets.shape[1] + _answers(data)[rows, slots]
    _, first, answer, lengths = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    hits = predictions[rows, slots] == data.targets[rows, slots]
    right = np.bincount(answer, weights=hits, minlength=len(first)) == lengths
    texts = np.full((len(first), int(lengths.max())), NO_ANSWER, dtype=np.int64)
    texts[answer, np.arange(len(rows)) - first[answer]] = data.targets[rows, slots]
    return right, texts, first


def _shares(prefix: str, right: NDArray[np.bool_], texts: NDArray[np.int64]) -> dict[str, float]:
    most = np.unique(texts, axis=0, return_counts=True)[1].max()
    return {f"{prefix}/accuracy": float(right.mean()), f"{prefix}/majority": float(most / len(right))}
