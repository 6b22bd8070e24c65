"""Studies with a known answer: what every configuration is worth, plus noise."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.records import Objective, StudyRecord, StudyState, TrialRecord, TrialState

ACCURACY = "tasks/phop/accuracy"
MS, KV = "decode/ms_per_token", "kv/bytes_per_sequence"


def trial(
    number: int, loops: int, window: int | None, seed: int, metrics: Mapping[str, float], **other: Any
) -> TrialRecord:
    params: dict[str, Any] = {"num_loops": loops} | ({} if window is None else {"window": window})
    settings: dict[str, Any] = {"state": TrialState.COMPLETE, "values": (), **other}
    return TrialRecord(
        number=number,
        params=params,
        knobs=params,
        seed=seed,
        configuration=f"{loops}-{window}",
        metrics=metrics,
        **settings,
    )


def study(trials: Sequence[TrialRecord], metric: str = ACCURACY, **other: Any) -> StudyRecord:
    settings: dict[str, Any] = {
        "name": "planted",
        "question": "which?",
        "state": StudyState.COMPLETE,
        "objectives": (
            Objective(metric=MS, direction="minimize"),
            Objective(metric=metric, direction="maximize" if metric == ACCURACY else "minimize"),
        ),
        "constraints": (),
        "search": ("num_loops", "window"),
        "seeds": (0, 1, 2),
        "spec": {},
        "budget": 20,
        "trials": tuple(trials),
    }
    return StudyRecord(**{**settings, **other})


def simulate(
    means: Mapping[int, Sequence[float]],
    noise: float | Mapping[int, float],
    seeds: int | Mapping[int, int],
    random: np.random.Generator,
    *,
    seed_noise: float = 0.0,
    metric: str = ACCURACY,
) -> StudyRecord:
    """A study whose loop counts have configurations of these true means; costs grow with loops and windows."""
    shared = seed_noise * random.normal(size=100)
    trials: list[TrialRecord] = []
    for loops, values in means.items():
        deviation = noise if isinstance(noise, float) else noise[loops]
        for position, mean in enumerate(values):
            window = None if loops == 1 else 4 * 2**position
            costs = {MS: 5.0 + 0.3 * (loops - 1), KV: 4e6 + (loops - 1) * 1e4 * (position + 1)}
            for seed in range(seeds if isinstance(seeds, int) else seeds[loops]):
                value = mean + shared[seed] + deviation * random.normal()
                trials.append(trial(len(trials), loops, window, seed, {metric: value, **costs}))
    return study(trials, metric)


def true_answer(means: Mapping[int, Sequence[float]], worth: float, sign: float = 1.0) -> int:
    """The smallest loop count from which no larger one pays, from the true means."""
    best = {loops: max(sign * value for value in values) for loops, values in means.items()}
    for loops in sorted(best):
        if all(best[larger] - best[loops] <= worth * (larger - loops) for larger in best if larger > loops):
            return loops
    raise AssertionError("the largest loop count always stays")
