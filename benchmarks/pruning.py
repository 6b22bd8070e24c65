"""How much of a study's front is reached with a third of its training tokens?

    python -m benchmarks.pruning [--seeds 20] [--json PATH]          # after pip install -e '.[benchmarks]'

Studies are replayed from the recorded learning curves of every configuration of a real small study: 39 of them, three
objectives (a held-out metric, decode latency ratio, KV bytes), 4 asynchronous workers, training time in proportion to
tokens and loops. Replays are deterministic and differ in the seed only, which orders the proposals and seeds samplers.

Tokens are shares of those of the full study, which trains every configuration to its end; those of running trials
count as they are spent. The hypervolume is that of the trials trained to their end, over the full study's, in
objectives scaled to the full study's best and worst and up to 1.1. Stopped trials do not count, whatever they reached.

Methods: `random`, `tpe` and `nsga2` train every proposal to its end. The others take proposals in random order
(`..., tpe`: from TPE) and stop trials at 1/27, 1/9 and 1/3 of a trial's tokens: `median`, `syne-tune moasha`,
`moasha`, and of ours without the rule that the front goes on (`top share only`), without the first rung (`from 1/9`)
and with trials that skip it (`two brackets`). A study that has tried every configuration before the budget is spent
ends there.
"""

import argparse
import json
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from benchmarks.commit import commit
from benchmarks.proposals import OptunaProposals, RandomProposals
from benchmarks.recording import Recording, load
from benchmarks.replay import Proposals, Replay, share_at
from benchmarks.syne_tune_pruner import SyneTunePruner
from orchestrator.pruning import Pruner, RungEntry
from orchestrator.pruning.median_pruner import MedianPruner
from orchestrator.pruning.moasha import Moasha
from orchestrator.pruning.no_pruner import NoPruner
from orchestrator.pruning.order import best_first
from orchestrator.statistics import interval

CASES = (("code", "val/bits_per_byte"), ("phop", "val/loss"), ("phop", "tasks/phop/accuracy"))
FACTOR = 3.0
BUDGET = 1 / 3
TARGET = 0.97
SHARES = tuple(index / 24 for index in range(1, 25))
"""Tokens, as shares of the full study's, at which the curves of the result are given."""


class TopShare(Moasha):
    """Halving alone: a trial on the front goes on only in the top share."""

    def keeps(self, number: int, rung: int, entries: Sequence[RungEntry]) -> bool:  # noqa: ARG002
        """Whether the trial is among the best 1 / `reduction_factor`."""
        return number in best_first(entries, self.seed)[: max(1, int(len(entries) / self.reduction_factor))]


@dataclass(frozen=True)
class Method:
    """One way to run a study: who proposes and who prunes, both made afresh for every seed."""

    name: str
    proposals: Callable[[Recording, int], Proposals]
    pruner: Callable[[Recording, int], Pruner]


def _first(recording: Recording, halvings: int) -> int:
    return round(recording.tokens_total / FACTOR**halvings)


def _none(recording: Recording, seed: int) -> Pruner:  # noqa: ARG001
    return NoPruner()


def _moasha(kind: type[Moasha] = Moasha, *, halvings: int = 3, brackets: int = 1) -> Callable[[Recording, int], Pruner]:
    return lambda recording, seed: kind(
        min_tokens=_first(recording, halvings), reduction_factor=FACTOR, brackets=brackets, seed=seed
    )


def _median(recording: Recording, seed: int) -> Pruner:  # noqa: ARG001
    return MedianPruner(min_tokens=_first(recording, 3), reduction_factor=FACTOR)


def _syne_tune(recording: Recording, seed: int) -> Pruner:
    np.random.seed(seed)  # its brackets are drawn from the global generator
    rungs = Moasha(min_tokens=_first(recording, 3), reduction_factor=FACTOR).rungs(recording.tokens_total)
    return SyneTunePruner(rungs, recording.tokens_total, FACTOR, objectives=3)


def _tpe(recording: Recording, seed: int) -> Proposals:
    return OptunaProposals(recording, optuna.samplers.TPESampler(seed=seed), seed)


def _nsga2(recording: Recording, seed: int) -> Proposals:
    return OptunaProposals(recording, optuna.samplers.NSGAIISampler(seed=seed, population_size=8), seed)


METHODS = (
    Method("random", RandomProposals, _none),
    Method("tpe", _tpe, _none),
    Method("nsga2", _nsga2, _none),
    Method("median", RandomProposals, _median),
    Method("syne-tune moasha", RandomProposals, _syne_tune),
    Method("syne-tune moasha, tpe", _tpe, _syne_tune),
    Method("moasha, top share only", RandomProposals, _moasha(TopShare)),
    Method("moasha", RandomProposals, _moasha()),
    Method("moasha, tpe", _tpe, _moasha()),
    Method("moasha from 1/9", RandomProposals, _moasha(halvings=2)),
    Method("moasha, two brackets", RandomProposals, _moasha(brackets=2)),
)


def measured(method: Method, recording: Recording, seeds: int) -> dict[str, Any]:
    """Means and half-widths of 95 % intervals over the seeds."""
    histories, completed = [], []
    for seed in range(seeds):
        replay = Replay(recording, method.proposals(recording, seed), method.pruner(recording, seed))
        histories.append(replay.run())
        completed.append(float(len(replay.completed)))
    return {
        "share_at_a_third": summary([share_at(history, BUDGET) for history in histories]),
        "seeds_that_reach_the_target": sum(share_at(history, BUDGET) >= TARGET for history in histories),
        "share_at_the_end": summary([history[-1][1] for history in histories]),
        "tokens_at_the_end": summary([history[-1][0] for history in histories]),
        "completed": summary(completed),
        "curve": [round(float(np.mean([share_at(each, spent) for each in histories])), 4) for spent in SHARES],
    }


def summary(values: list[float]) -> dict[str, float]:
    """Mean, half-width of its 95 % interval, and the least value, of two or more."""
    found = interval(values)
    half_width = math.nan if found.high is None else found.high - found.mean
    return {"mean": round(found.mean, 4), "half_width": round(half_width, 4), "least": round(min(values), 4)}


def report(case: dict[str, Any]) -> str:
    """A table for people."""
    lines = [
        f"{case['study']}, {case['metric']}: {case['configurations']} configurations, "
        f"{case['on_the_front']} of them on the front",
        f"{'':24}{'hypervolume at 1/3':>20}{'least':>8}{'>= 97 %':>9}{'at the end':>12}{'tokens':>9}{'trained':>9}",
    ]
    for name, row in case["methods"].items():
        third = row["share_at_a_third"]
        lines.append(
            f"{name:24}{third['mean']:13.3f} ± {third['half_width']:.3f}{third['least']:8.3f}"
            f"{row['seeds_that_reach_the_target']:9d}{row['share_at_the_end']['mean']:12.3f}"
            f"{row['tokens_at_the_end']['mean']:9.3f}{row['completed']['mean']:9.1f}"
        )
    return "\n".join(lines)


def case(name: str, metric: str, seeds: int) -> dict[str, Any]:
    """Every method on one recording."""
    recording = load(name, metric)
    return {
        "study": name,
        "metric": metric,
        "configurations": len(recording.curves),
        "on_the_front": recording.on_the_front(),
        "methods": {method.name: measured(method, recording, seeds) for method in METHODS},
    }


def main() -> None:
    """Replay, print, and keep the numbers if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="replays of every method")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    result: dict[str, Any] = {
        "machine": platform.platform(),
        "commit": commit(),
        "seeds": arguments.seeds,
        "tokens": [round(share, 4) for share in SHARES],
        "cases": [],
    }
    for name, metric in CASES:
        result["cases"].append(case(name, metric, arguments.seeds))
        print(report(result["cases"][-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
