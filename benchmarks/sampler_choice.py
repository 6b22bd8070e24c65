"""Which sampler should `auto` be? What an ask costs, and what the configurations are worth.

    python -m benchmarks.sampler_choice [--configurations 2000] [--repeats 2] [--json PATH]

Twelve mixed parameters, two of them conditional. The values are smooth functions with interactions and ripples, so that
nothing has to be trained: with one objective what counts is the best value (small is good), with three that pull apart
the hypervolume (large is good). One configuration at a time; `tpe 500` looks back on the latest 500 only. Costs are
processor milliseconds of one ask, the median of five, after so many random configurations.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import log10
from pathlib import Path
from statistics import median
from typing import Any

import moocore
import numpy as np
import optuna

from benchmarks.commit import commit
from benchmarks.sampler_stall import STUDY
from orchestrator.proposer import Evaluation, Proposer
from orchestrator.samplers import Choice
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

CHOICES = {
    "random": Choice(sampler="random"),
    "nsga2": Choice(sampler="nsga2"),
    "tpe 500": Choice(sampler="tpe", window=500),
    "tpe": Choice(sampler="tpe"),
}
BEST = np.array([0.5, 0.6, 0.2, 0.3, 0.1, 0.5, 0.8, 0.3, 0.6, 0.7, 2 / 3, 0.0])
REFERENCE = (3.0, 1.1, 1.5)
KNOWN = (100, 1000, 10_000)


def new_spec(objectives: int, configurations: int, seed: int) -> StudySpec:
    """The study of `sampler_stall`, everything minimised."""
    metrics = [objective["metric"] for objective in STUDY["objectives"][:objectives]]
    changes = {
        "objectives": [{"metric": metric, "direction": "minimize"} for metric in metrics],
        "sampler": {"name": "random", "seed": seed},
        "budget": {"configurations": configurations},
    }
    return StudySpec.from_plain(STUDY | changes)


def point(params: dict[str, Any]) -> np.ndarray:
    """Every parameter from 0 to 1; a missing one has a value of its own."""
    window = {8: 0.0, 16: 1 / 3, 32: 2 / 3, 64: 1.0, None: 0.5}[params.get("window")]
    gate = {"learned": 0.0, 0.5: 0.4, 0.9: 1.0, None: 0.8}[params.get("gate_mode")]
    return np.array(
        [
            (params["num_loops"] - 1) / 2,
            (log10(params["lr"]) + 4) / 3,
            params["weight_decay"] / 0.3,
            params["warmup_ratio"] / 0.3,
            params["min_lr_ratio"],
            (params["beta1"] - 0.8) / 0.19,
            (params["beta2"] - 0.9) / 0.099,
            (params["batch_size"] - 4) / 60,
            (log10(params["grad_clip"]) + 1) / 2,
            (params["num_layers"] - 1) / 7,
            window,
            gate,
        ]
    )


def values(params: Any, objectives: int) -> tuple[float, ...]:
    """A distance to the best point, a size, and a distance to the opposite point."""
    x = point(dict(params))
    size = 0.5 * x[9] + 0.3 * x[0] + 0.2 * x[10]
    return (distance(x, BEST), float(size), distance(x, 1 - BEST) / 2 + 0.2 * float(x[7]))[:objectives]


def distance(x: np.ndarray, best: np.ndarray) -> float:
    """Squared, with neighbours that depend on each other, and ripples."""
    apart = x - best
    mixed = apart.copy()
    mixed[1:] += 0.7 * apart[:-1]
    return float(np.sum(mixed**2) + 0.15 * np.mean(1 - np.cos(6 * np.pi * apart)))


def worth(known: Sequence[Evaluation]) -> float:
    """The best value, or the hypervolume."""
    reached = np.array([evaluation.values for evaluation in known])
    return float(reached.min()) if reached.shape[1] == 1 else float(moocore.hypervolume(reached, ref=REFERENCE))


def optimise(choice: Choice, objectives: int, configurations: int, seed: int) -> dict[str, Any]:
    """One study: what it was worth at some points, and the processor seconds that it took."""
    spec = new_spec(objectives, configurations, seed)
    proposer, known, reached = Proposer(spec, SearchSpace(spec), choice), list[Evaluation](), dict[int, float]()
    began = time.process_time()
    while len(known) < configurations:
        proposal = proposer.propose(known)
        assert proposal is not None, "the space is continuous"
        params = proposal.configuration.params
        known.append(replace(proposal.running(), running=False, values=values(params, objectives)))
        if len(known) in (300, 1000, configurations):
            reached[len(known)] = worth(known)
    return {"seed": seed, "worth": reached, "seconds": time.process_time() - began}


def costs(choice: Choice, objectives: int) -> dict[int, float]:
    """Milliseconds per ask by how many configurations are known; between two asks one starts and another one ends."""
    spec = new_spec(objectives, KNOWN[-1], 0)
    space = SearchSpace(spec)
    known = list(random_study(space, objectives, KNOWN[-1] + 10))
    found: dict[int, float] = {}
    for number in KNOWN:
        proposer, taken = Proposer(spec, space, choice), list[float]()
        for latest in range(number, number + 6):
            running = [replace(one, running=True, values=None) for one in known[latest - 4 : latest]]
            began = time.process_time()
            proposer.propose([*known[: latest - 4], *running])
            taken.append(1e3 * (time.process_time() - began))
        found[number] = median(taken[1:])
    return found


def random_study(space: SearchSpace, objectives: int, number: int) -> Iterator[Evaluation]:
    """Configurations without order, in generations of 50."""
    random = optuna.create_study()
    for at in range(number):
        random.sampler = optuna.samplers.RandomSampler(seed=at)
        params = space.suggest(random.ask())
        yield Evaluation(
            fingerprint=str(at),
            params=params,
            values=values(params, objectives),
            violations={},
            running=False,
            sampler_state={"NSGAIISampler:generation": at // 50},
        )


def costs_line(one: dict[str, Any]) -> str:
    """For people."""
    times = "".join(f"{milliseconds:10.1f} ({known})" for known, milliseconds in one["milliseconds"].items())
    return f"{one['sampler']:8} {one['objectives']} objective(s), ms per ask (known): {times}"


def study_line(one: dict[str, Any]) -> str:
    """For people."""
    reached = "  ".join(f"{value:.4f} ({number})" for number, value in one["worth"].items())
    what = "best value" if one["objectives"] == 1 else "hypervolume"
    return f"{one['sampler']:8} seed {one['seed']}, {what} (after): {reached}  in {one['seconds']:.0f} s"


def keep(line: str, result: dict[str, Any], path: Path | None) -> None:
    """Print what is new and write all there is, because the whole takes many minutes."""
    print(line, flush=True)
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, print, and keep the numbers if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "optuna": optuna.__version__,
        "commit": commit(),
        "costs": [],
        "studies": [],
    }
    for objectives, (name, choice) in product((1, 3), CHOICES.items()):
        one: dict[str, Any] = {"sampler": name, "objectives": objectives}
        result["costs"].append(one | {"milliseconds": costs(choice, objectives)})
        keep(costs_line(result["costs"][-1]), result, arguments.json)
    for seed, objectives, (name, choice) in product(range(arguments.repeats), (1, 3), CHOICES.items()):
        one = {"sampler": name, "objectives": objectives}
        result["studies"].append(one | optimise(choice, objectives, arguments.configurations, seed))
        keep(study_line(result["studies"][-1]), result, arguments.json)


if __name__ == "__main__":
    main()
