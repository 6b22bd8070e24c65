"""The real driver on a simulated cluster: are devices kept busy, and does a trial cost the same in large studies?

    python -m benchmarks.simulation scale  [--nodes 1000] [--devices 8] [--trials 100 1000 10000] [--json PATH]
    python -m benchmarks.simulation policy [--trials 600] [--json PATH]

scale: studies of more and more trials on the same cluster. The driver's own processor time passes on the simulated
clock too, so that devices wait for a slow driver. A trial trains for about two hours. Printed per study: the share of
time in use of the devices for which there was work, the driver's processor time per trial, and how its memory grew.
Targets: 98 %, and the same from the smallest to the largest study.

policy: where to place attempts when one node in five dies every half hour and a quarter of them is twice as fast; no
processor time is charged, so every number repeats exactly. Printed per policy: hours to the end of the study, attempts
lost, and device hours of training that were lost with them.
"""

import argparse
import json
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from orchestrator.backends.simulation.fleet import (
    Node,
    NodeState,
    even_fleet,
    place_fastest,
    place_first,
    place_reliable,
)
from orchestrator.backends.simulation.simulated_backend import SimulatedBackend
from orchestrator.backends.simulation.virtual_clock import VirtualClock
from orchestrator.home import Home
from orchestrator.listener import Silence
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.runner import Runner
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from orchestrator.tracking.tracker import Tracker
from workers.protocol import MetricReport, Request

TOKENS = 7_200_000
TOKENS_PER_SECOND = 1000.0
POLICIES: Mapping[str, Callable[[Sequence[NodeState]], NodeState]] = {
    "first": place_first,
    "fastest": place_fastest,
    "reliable": place_reliable,
}


class Untracked(Tracker):
    """Keeps nothing: MLflow has a process of its own, and its cost is measured by `benchmarks.orchestration`."""

    def start_study(self, study: StudyRecord) -> None:
        """Nothing."""

    def start_trial(self, trial: TrialRecord) -> None:
        """Nothing."""

    def report(self, number: int, report: MetricReport) -> None:
        """Nothing."""

    def finish_trial(self, trial: TrialRecord) -> None:
        """Nothing."""

    def finish_study(self, study: StudyRecord) -> None:
        """Nothing."""

    def reconcile(self, study: StudyRecord, owned: Sequence[int] = ()) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Growth(Silence):
    """The driver's memory when trials end."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.mebibytes: list[float] = []

    def trial_ended(self, trial: TrialRecord) -> None:
        """Look now and then."""
        if trial.number % 500 == 0:
            self.mebibytes.append(self._process.memory_info().rss / 2**20)


def curve(request: Request, share: float) -> Mapping[str, float]:
    """A loss that falls with training and depends on the learning rate."""
    rate = request.train.lr if hasattr(request, "train") else 0.0
    return {"val/bits_per_byte": 3.0 - share + (rate - 0.003) ** 2, "val/accuracy": share / 2}


def study_spec(trials: int) -> StudySpec:
    """Four parameters, two objectives, three reports a trial; the trials' lengths differ by the loops."""
    return StudySpec.from_plain(
        {
            "name": f"simulated-{trials}",
            "model": {"variant": "plt", "d_model": 16, "num_layers": 1, "num_heads": 2},
            "data": {"corpus": "stdlib", "seq_len": 64},
            "train": {"tokens": TOKENS, "batch_size": 64, "evaluations": 3},
            "search": {
                "num_loops": {"choices": [1, 2, 3]},
                "window": {"choices": [8, 16], "when": {"num_loops": ">1"}},
                "lr": {"low": 1e-4, "high": 1e-1, "log": True},
                "weight_decay": {"low": 0.0, "high": 0.3},
            },
            "objectives": [
                {"metric": "val/bits_per_byte", "direction": "minimize"},
                {"metric": "val/accuracy", "direction": "maximize"},
            ],
            "retry": {"max_attempts": 100, "trial_timeout": "30d"},
            "budget": {"configurations": trials},
        }
    )


def driven(backend: SimulatedBackend, clock: VirtualClock, trials: int, listener: Silence) -> StudyRecord:
    """Run a study of so many trials to its end."""
    with tempfile.TemporaryDirectory() as folder:
        home, spec = Home(Path(folder)), study_spec(trials)
        with Study.open(spec, home) as study:
            return Runner(
                spec=spec, study=study, backend=backend, tracker=Untracked(), home=home, clock=clock, listener=listener
            ).run()


def scale(nodes: int, devices: int, trials: Sequence[int]) -> list[dict[str, Any]]:
    """One row per study."""
    rows = []
    for count in trials:
        clock, growth = VirtualClock(charge=time.process_time), Growth()
        backend = SimulatedBackend(even_fleet(nodes, devices, TOKENS_PER_SECOND), curve=curve, clock=clock, work=count)
        began, cpu = time.perf_counter(), time.process_time()
        before = psutil.Process().memory_info().rss / 2**20
        record = driven(backend, clock, count, growth)
        cpu = time.process_time() - cpu
        rows.append(
            {
                "trials": count,
                "complete": sum(trial.values is not None for trial in record.trials),
                "busy share of devices that had work": backend.utilisation.busy_share,
                "driver CPU ms per trial": 1e3 * cpu / count,
                "driver MiB per 1000 trials": 1e3 * (psutil.Process().memory_info().rss / 2**20 - before) / count,
                "simulated hours": clock() / 3600,
                "real seconds": time.perf_counter() - began,
            }
        )
        print({name: round(value, 4) if isinstance(value, float) else value for name, value in rows[-1].items()})
    return rows


def troubled_fleet() -> list[Node]:
    """Twenty nodes of four devices: every fifth is unreliable, every fourth fast."""
    return [
        Node(
            name=f"node-{index}",
            devices=4,
            tokens_per_second=TOKENS_PER_SECOND * (2 if index % 4 == 0 else 1),
            seconds_between_failures=1800.0 if index % 5 == 0 else None,
            repair_seconds=120.0,
        )
        for index in range(20)
    ]


def policy(trials: int) -> list[dict[str, Any]]:
    """One row per policy."""
    rows = []
    for name, place in POLICIES.items():
        clock = VirtualClock()
        backend = SimulatedBackend(troubled_fleet(), curve=curve, clock=clock, place=place)
        record = driven(backend, clock, trials, Silence())
        rows.append(
            {
                "policy": name,
                "complete": sum(trial.values is not None for trial in record.trials),
                "simulated hours": clock() / 3600,
                "attempts lost": sum(len(trial.attempts) - 1 for trial in record.trials),
                "device hours lost": backend.utilisation.wasted / 3600,
            }
        )
        print({key: round(value, 2) if isinstance(value, float) else value for key, value in rows[-1].items()})
    return rows


def main() -> None:
    """Print a table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["scale", "policy"])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--trials", type=int, nargs="+")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "scale":
        rows = scale(arguments.nodes, arguments.devices, arguments.trials or [100, 1000, 10_000])
    else:
        rows = policy((arguments.trials or [600])[0])
    if arguments.json is not None:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        machine = f"{psutil.cpu_count()} cores, {platform.platform()}"
        plain = {"what": arguments.what, "rows": rows, "machine": machine, "commit": commit.stdout.strip()}
        arguments.json.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
