"""How long do devices idle because the next configuration is not ready? At most 1 % of their time.

    python -m benchmarks.sampler_stall [--plan auto:8:3 nsga2:8:1 gp:8:1 auto:0:1] [--json PATH]

Eight devices "train" trials of about two seconds each: they wait in threads of their own, in real time, and report to a
driver loop, which tells, asks and starts the next trial as a study does. 300 trials, three objectives, a mixed space of
twelve parameters, two of them conditional; every repeat has another seed. A device idles from the end of one trial to
the start of the next, whatever the reason, from the first ask to its last trial. The share is that over all
device-seconds. The same driver without asking ahead (depth 0) is the comparison.
"""

import argparse
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log10
from pathlib import Path
from queue import SimpleQueue
from random import Random
from statistics import median
from threading import Thread
from typing import Any

import numpy as np
import optuna

from benchmarks.commit import commit
from orchestrator.ask_ahead import AskAhead
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

DEVICES = 8
TARGET = 0.01
STUDY: dict[str, Any] = {
    "name": "stall",
    "model": {"variant": "plt", "d_model": 64, "num_heads": 4},
    "data": {"seq_len": 128},
    "search": {
        "num_loops": {"choices": [1, 2, 3]},
        "window": {"choices": [8, 16, 32, 64], "when": {"num_loops": ">1"}},
        "gate_mode": {"choices": ["learned", 0.5, 0.9], "when": {"num_loops": ">1"}},
        "num_layers": {"low": 1, "high": 8},
        "batch_size": {"low": 4, "high": 64, "step": 4},
        "lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "weight_decay": {"low": 0.0, "high": 0.3},
        "warmup_ratio": {"low": 0.0, "high": 0.3},
        "min_lr_ratio": {"low": 0.0, "high": 1.0},
        "beta1": {"low": 0.8, "high": 0.99},
        "beta2": {"low": 0.9, "high": 0.999},
        "grad_clip": {"low": 0.1, "high": 10.0, "log": True},
    },
    "objectives": [
        {"metric": "val/bits_per_byte", "direction": "minimize"},
        {"metric": "val/accuracy", "direction": "maximize"},
        {"metric": "val/loss", "direction": "minimize"},
    ],
}


@dataclass
class Device:
    """Waits in place of training, and keeps when it worked."""

    number: int
    finished: "SimpleQueue[tuple[Device, Proposal]]"
    inbox: "SimpleQueue[tuple[Proposal, float] | None]" = field(default_factory=SimpleQueue)
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Work until told to stop."""
        while (work := self.inbox.get()) is not None:
            self.starts.append(time.perf_counter())
            time.sleep(work[1])
            self.ends.append(time.perf_counter())
            self.finished.put((self, work[0]))

    def idle(self, began: float) -> float:
        """Seconds between trials, and before the first."""
        return sum(start - end for start, end in zip(self.starts, [began, *self.ends], strict=False))


def run(sampler: str, depth: int, trials: int, seconds: float, seed: int) -> dict[str, Any]:
    """One study, as plain data."""
    sampling = {"name": sampler, "seed": seed}
    spec = StudySpec.from_plain(STUDY | {"sampler": sampling, "budget": {"configurations": trials}})
    proposer = Proposer(spec, SearchSpace(spec))
    ahead = AskAhead(proposer, depth)
    finished: SimpleQueue[tuple[Device, Proposal]] = SimpleQueue()
    devices = [Device(number, finished) for number in range(DEVICES)]
    threads = [Thread(target=device.run) for device in devices]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    made, asks = drive(ahead, devices, finished, trials, Random(seed), seconds)
    for device, thread in zip(devices, threads, strict=True):
        device.inbox.put(None)
        thread.join()
    ahead.close()
    idle = sum(device.idle(began) for device in devices)
    total = sum(device.ends[-1] - began for device in devices)
    return {
        "sampler": proposer.sampler,
        "depth": depth,
        "seed": seed,
        "idle_share": idle / total,
        "idle_seconds": idle,
        "device_seconds": total,
        "ask_ms": {"p50": 1e3 * median(asks), "p95": 1e3 * float(np.percentile(asks, 95)), "max": 1e3 * max(asks)},
        "load": os.getloadavg()[0],
        "made_by": dict(Counter(made)),
    }


def drive(
    ahead: AskAhead,
    devices: Sequence[Device],
    finished: "SimpleQueue[tuple[Device, Proposal]]",
    trials: int,
    random: Random,
    seconds: float,
) -> tuple[list[str], list[float]]:
    """Ask, start, wait, tell. Returns who made each proposal, and the seconds that each ask took."""
    known: dict[str, Evaluation] = {}
    made: list[str] = []
    asks: list[float] = []
    free = list(devices)
    running = 0
    while running or len(made) < trials:
        while free and len(made) < trials:
            began = time.perf_counter()
            ahead.update(list(known.values()))
            proposal = ahead.take()
            asks.append(time.perf_counter() - began)
            assert proposal is not None, "the space is continuous"
            known[proposal.configuration.fingerprint] = proposal.running()
            free.pop(0).inbox.put((proposal, seconds * random.uniform(0.75, 1.25)))
            made.append(proposal.sampler)
            running += 1
        device, ended = finished.get()
        running -= 1
        free.append(device)
        name = ended.configuration.fingerprint
        known[name] = replace(known[name], running=False, values=objectives(ended))
    return made, asks


def objectives(proposal: Proposal) -> tuple[float, ...]:
    """Three smooth values that pull in different directions."""
    params = proposal.configuration.params
    far = abs(log10(params["lr"]) + 2.5) + abs(params["beta2"] - 0.95) * 10 + params["weight_decay"]
    big = params["num_layers"] / 8 + params["num_loops"] / 3
    return far + 1 / (1 + big), 1 / (1 + far), big + abs(params["warmup_ratio"] - 0.1)


def report(result: dict[str, Any]) -> str:
    """A line per run."""
    lines = [
        f"{DEVICES} devices, {result['trials']} trials of {result['seconds']} s, three objectives, twelve parameters; "
        f"commit {result['commit']}; {result['machine']}, optuna {result['optuna']}",
        f"{'sampler':9}{'depth':>6}{'seed':>5}{'load':>6}{'idle':>9}{'ask p50':>10}{'p95':>9}{'max ms':>9}  made by",
    ]
    for one in result["runs"]:
        ask, target = one["ask_ms"], "" if one["depth"] == 0 else f"  {verdict(one)}"
        lines.append(
            f"{one['sampler']:9}{one['depth']:6}{one['seed']:5}{one['load']:6.1f}{one['idle_share']:9.3%}"
            f"{ask['p50']:10.1f}{ask['p95']:9.1f}{ask['max']:9.1f}  {one['made_by']}{target}"
        )
    return "\n".join(lines)


def verdict(run: dict[str, Any]) -> str:
    """Whether the target is met."""
    return f"target {TARGET:.0%}: {'met' if run['idle_share'] <= TARGET else 'missed'}"


def main() -> None:
    """Measure, print, and keep the numbers if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--plan",
        nargs="+",
        metavar="SAMPLER:DEPTH:REPEATS",
        default=[f"auto:{DEVICES}:3", f"nsga2:{DEVICES}:1", f"gp:{DEVICES}:1", "auto:0:1"],
        help="depth 0 asks only when a device is free",
    )
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=2.0, help="mean length of a trial")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    runs = [
        run(sampler, int(depth), arguments.trials, arguments.seconds, seed)
        for sampler, depth, repeats in (entry.split(":") for entry in arguments.plan)
        for seed in range(int(repeats))
    ]
    machine = f"{platform.machine()}, {len(os.sched_getaffinity(0))} CPUs"
    result = {
        "machine": machine,
        "optuna": optuna.__version__,
        "commit": commit(),
        "devices": DEVICES,
        "seconds": arguments.seconds,
        "trials": arguments.trials,
        "target": TARGET,
        "runs": runs,
    }
    print(report(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
