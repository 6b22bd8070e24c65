"""The real driver on a simulated cluster: are devices kept busy, and does a trial cost the same in large studies?

    python -m benchmarks.simulation [--json benchmarks/results/simulation.json]      all three tables
    python -m benchmarks.simulation scale  [--nodes 1000] [--devices 8] [--trials 100 1000 10000] [--json PATH]
    python -m benchmarks.simulation repeat [--trials 1000] [--json PATH]
    python -m benchmarks.simulation policy [--trials 600] [--json PATH]

scale: studies of more and more trials on the same cluster, each trial of about two hours. The driver's own time passes
on the simulated clock too, so that devices wait for a slow driver: in the first rows the processor time that it used,
in a last one wall-clock time, which other programs on the machine and the disk add to. Printed per study: the share of
time in use of the devices for which there was work, the driver's processor time per trial, and how its memory grew in
each half of the study.

repeat: two runs under one seed with failing nodes, and no processor time charged. Are all decisions the same:
parameters, seeds, attempts, values, and when each trial ended?

policy: where to place attempts when one node in five dies every half hour and a quarter of them is twice as fast; no
processor time is charged, so every number repeats exactly. Printed per policy: hours to the end of the study, attempts
lost, and device hours of training that were lost with them.
"""

import argparse
import gc
import json
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.commit import commit
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
    """The driver's memory and processor time when a half of the trials has ended."""

    def __init__(self, trials: int) -> None:
        self._half, self._ended = trials // 2, 0
        self.resident, self.processor = [resident()], [time.process_time()]

    def trial_ended(self, trial: TrialRecord) -> None:
        """One more."""
        del trial
        self._ended += 1
        if self._ended % self._half == 0:
            self.resident.append(resident())
            self.processor.append(time.process_time())

    def per_thousand(self, half: int) -> float:
        """MiB by which memory grew in a half of the study, per 1000 trials."""
        return 1e3 * (self.resident[half + 1] - self.resident[half]) / self._half

    def milliseconds(self, half: int) -> float:
        """Processor time per trial in a half of the study."""
        return 1e3 * (self.processor[half + 1] - self.processor[half]) / self._half


class Moments(Silence):
    """When each trial ended, by the simulated clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.ended: list[tuple[int, float]] = []

    def trial_ended(self, trial: TrialRecord) -> None:
        """One more."""
        self.ended.append((trial.number, self._clock()))


def resident() -> float:
    """MiB that this process holds, garbage left out."""
    gc.collect()
    return float(psutil.Process().memory_info().rss / 2**20)


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
    """One row per study, and one more for the largest."""
    return [
        *(row(nodes, devices, count, "processor time", time.process_time) for count in trials),
        row(nodes, devices, max(trials), "wall-clock time", time.perf_counter),
    ]


def row(nodes: int, devices: int, trials: int, charged: str, charge: Callable[[], float]) -> dict[str, Any]:
    """A study in which the driver's time by `charge` passes on the simulated clock."""
    clock, growth = VirtualClock(charge=charge), Growth(trials)
    backend = SimulatedBackend(even_fleet(nodes, devices, TOKENS_PER_SECOND), curve=curve, clock=clock, work=trials)
    began, cpu = time.perf_counter(), time.process_time()
    record = driven(backend, clock, trials, growth)
    return said(
        {
            "trials": trials,
            "devices": nodes * devices,
            "charged": charged,
            "complete": sum(trial.values is not None for trial in record.trials),
            "busy share of devices that had work": backend.utilisation.busy_share,
            "driver CPU ms per trial": 1e3 * (time.process_time() - cpu) / trials,
            "driver CPU ms per trial, by half": [growth.milliseconds(0), growth.milliseconds(1)],
            "driver MiB per 1000 trials, by half": [growth.per_thousand(0), growth.per_thousand(1)],
            "simulated hours": clock() / 3600,
            "real seconds": time.perf_counter() - began,
        }
    )


def said(result: dict[str, Any]) -> dict[str, Any]:
    """The same, rounded for whoever reads, after it was printed."""
    short = {
        name: [round(each, 4) for each in value] if isinstance(value, list) else value for name, value in result.items()
    }
    short = {name: round(value, 4) if isinstance(value, float) else value for name, value in short.items()}
    print(short, flush=True)
    return short


def repeat(trials: int) -> list[dict[str, Any]]:
    """One row: whether two runs under one seed decide the same."""
    runs = []
    for _ in range(2):
        clock = VirtualClock()
        backend, moments = SimulatedBackend(troubled_fleet(), curve=curve, clock=clock, seed=1), Moments(clock)
        record = driven(backend, clock, trials, moments)
        decided = [(each.params, each.seed, each.values, len(each.attempts), each.state) for each in record.trials]
        runs.append((decided, moments.ended))
    lost = sum(attempts - 1 for _, _, _, attempts, _ in runs[0][0])
    return [said({"trials": trials, "attempts lost": lost, "all decisions the same": runs[0] == runs[1]})]


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
            said(
                {
                    "policy": name,
                    "complete": sum(trial.values is not None for trial in record.trials),
                    "simulated hours": clock() / 3600,
                    "attempts lost": sum(len(trial.attempts) - 1 for trial in record.trials),
                    "device hours lost": backend.utilisation.wasted / 3600,
                }
            )
        )
    return rows


def main() -> None:
    """Print tables, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["all", "scale", "repeat", "policy"], nargs="?", default="all")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--trials", type=int, nargs="+")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.what == "all" and given.trials:
        parser.error("--trials is for one of the tables")
    tables: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "scale": lambda: scale(given.nodes, given.devices, given.trials or [100, 1000, 10_000]),
        "repeat": lambda: repeat((given.trials or [1000])[0]),
        "policy": lambda: policy((given.trials or [600])[0]),
    }
    wanted = tables if given.what == "all" else {given.what: tables[given.what]}
    results = {name: make() for name, make in wanted.items()}
    if given.json is not None:
        machine = {"cores": psutil.cpu_count(), "platform": platform.platform(), "python": platform.python_version()}
        targets = {
            "busy share of devices that had work": 0.98,
            "driver CPU per trial, largest over smallest study": 1.5,
        }
        plain = {**results, "targets": targets, "machine": machine, "commit": commit()}
        given.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
