"""Does tracking slow training down? Steps of a millisecond, timed with MLflow absent, far away, down and on SQLite.

    python -m benchmarks.tracking [--repeats 10] [--steps 2000] [--json PATH]

Training is a loop of pure Python in the driver's own process, a fixed amount of work that takes about a millisecond:
the worst case, since every moment that the tracker's thread holds the interpreter is lost to it, and the process that
speaks with MLflow takes a processor (training on the Ray backend happens in other processes). Every tenth step
(realistic), or every step (extreme), is reported with three metrics. The settings take turns, one block of steps each,
so that a busy machine slows all of them alike; the ratios are medians over the blocks of a turn. Quote the ratios
without the queue: they leave out the time for which the kernel kept training waiting for a processor that other
programs had, which on a crowded machine is most of the noise, and keep the time for which it worked or waited for the
interpreter. MLflow's import and the making of the database are over before the clock starts; what they cost a study
once, at its start, is measured apart.
Target: less than 5 % slower when it reports every tenth step.
"""

import argparse
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.commit import commit
from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.records import Objective, StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from workers.protocol import MetricReport

SETTINGS = ("absent", "server 100 ms away", "server down", "SQLite")
REPORT_EVERY = {"realistic": 10, "extreme": 1}
TARGET = 1.05
COLD_STEPS = 5000
STUDY = StudyRecord(
    name="bench",
    question="",
    state=StudyState.RUNNING,
    objectives=(Objective(metric="train/loss", direction="minimize"),),
    constraints=(),
    search=(),
    seeds=(0,),
    spec={},
    budget=1,
    trials=(),
    created=datetime(2026, 5, 1, tzinfo=UTC),
)
TRIAL = TrialRecord(
    number=0, state=TrialState.RUNNING, params={}, seed=0, configuration="c", values=None, metrics={}, knobs={"lr": 1}
)


def work(amount: int) -> int:
    """One training step."""
    total = 0
    for index in range(amount):
        total += index * index
    return total


def amount_of_a_millisecond() -> int:
    """How much work takes a millisecond when the machine is quiet."""
    times = []
    for _ in range(50):
        began = time.perf_counter()
        work(10_000)
        times.append(time.perf_counter() - began)
    return round(10_000 * 0.001 / min(times))


def queued() -> float:
    """Seconds for which this thread was ready and had no processor, so far; 0 where the kernel does not say."""
    try:
        return int(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def train(tracker: MlflowTracker | None, steps: int, every: int, amount: int) -> tuple[float, float]:
    """Seconds that a block of steps takes, and how many of them are not waiting for a processor."""
    queue, began = queued(), time.perf_counter()
    for step in range(1, steps + 1):
        work(amount)
        if tracker is not None and step % every == 0:
            metrics = {"train/loss": 1 / step, "train/lr": 3e-3, "train/grad_norm": 0.5}
            tracker.report(0, MetricReport(step=step, tokens=1024 * step, metrics=metrics, seconds=0.001 * step))
    seconds = time.perf_counter() - began
    return seconds, seconds - (queued() - queue)


def block(setting: str, uris: dict[str, str], steps: int, every: int, amount: int) -> tuple[float, float]:
    """Seconds of one block with one setting; delivering what is left happens off the clock."""
    if setting == "absent":
        return train(None, steps, every, amount)
    os.environ["MLFLOW_TRACKING_URI"] = uris[setting]
    home = Home(Path(tempfile.mkdtemp(prefix="plt-tracking-")))
    tracker = MlflowTracker(home, f"bench-{time.time_ns()}", patience=0.0 if setting == "server down" else 60.0)
    tracker.start_study(STUDY)
    tracker.start_trial(TRIAL)
    if setting != "server down":
        tracker.runs()
    seconds = train(tracker, steps, every, amount)
    with suppress(ServiceError):
        tracker.close()
    shutil.rmtree(home.root)
    return seconds


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(*arguments: str) -> Iterator[None]:
    """A Python module in a process of its own."""
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def mlflow_server(folder: Path) -> Iterator[int]:
    """The port of a real MLflow server."""
    port = free_port()
    store = (
        "--backend-store-uri",
        f"sqlite:///{folder / 'server.db'}",
        "--artifacts-destination",
        str(folder / "files"),
    )
    with running("mlflow", "server", *store, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"):
        wait_for(f"http://127.0.0.1:{port}/health")
        yield port


def wait_for(url: str) -> None:
    """Wait up to two minutes until a server answers."""
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def run(repeats: int, steps: int) -> dict[str, Any]:
    """One measurement as plain data."""
    amount = amount_of_a_millisecond()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plt-tracking-")))
        server, proxy = stack.enter_context(mlflow_server(folder)), free_port()
        stack.enter_context(running("benchmarks.slow_proxy", "--listen", str(proxy), "--to", str(server)))
        wait_for(f"http://127.0.0.1:{proxy}/health")
        uris = {
            "server 100 ms away": f"http://127.0.0.1:{proxy}",
            "server down": f"http://127.0.0.1:{free_port()}",
            "SQLite": f"sqlite:///{folder / 'mlflow.db'}",
        }
        for setting in SETTINGS:  # imports, connections, the database
            block(setting, uris, 100, 1, amount)
        seconds = {load: turns(uris, repeats, steps, every, amount) for load, every in REPORT_EVERY.items()}
        cold = cold_starts(uris, amount, max(3, repeats // 3))
    return {
        "machine": {"system": platform.platform(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]},
        "commit": commit(),
        "repeats": repeats,
        "steps": steps,
        "ratios": {load: {name: ratios(rows, name) for name in SETTINGS[1:]} for load, rows in seconds.items()},
        "seconds": seconds,
        "seconds_lost_at_the_start": cold,
    }


def turns(
    uris: dict[str, str], repeats: int, steps: int, every: int, amount: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of every block, by setting."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in SETTINGS}
    for turn in range(repeats):
        order = SETTINGS[turn % len(SETTINGS) :] + SETTINGS[: turn % len(SETTINGS)]
        for setting in order:
            seconds[setting].append(block(setting, uris, steps, every, amount))
    return seconds


def ratios(seconds: dict[str, list[tuple[float, float]]], name: str) -> dict[str, float]:
    """Median and quartiles of a setting's blocks over the same turn's blocks without a tracker."""
    wall, working = (
        [ours[part] / absent[part] for ours, absent in zip(seconds[name], seconds["absent"], strict=True)]
        for part in (0, 1)
    )
    low, middle, high = quantiles(working, n=4)
    return {"without_queue": middle, "low": low, "high": high, "wall": median(wall)}


def cold_starts(uris: dict[str, str], amount: int, repeats: int) -> dict[str, float]:
    """Seconds by which the first steps of a study last longer, MLflow's import among them; medians over processes."""
    lost: dict[str, list[float]] = {name: [] for name in SETTINGS[1:]}
    for _ in range(repeats):
        absent = cold_start("absent", "", amount)
        for setting in lost:
            lost[setting].append(cold_start(setting, uris[setting], amount) - absent)
    return {name: median(values) for name, values in lost.items()}


def cold_start(setting: str, uri: str, amount: int) -> float:
    """Seconds of the first steps in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tracking", "--cold", setting, uri, str(amount)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def cold_block(setting: str, uri: str, amount: int) -> float:
    """A study's first steps with nothing imported or made beforehand."""
    if setting == "absent":
        return train(None, COLD_STEPS, 10, amount)[0]
    os.environ["MLFLOW_TRACKING_URI"] = uri
    with tempfile.TemporaryDirectory(prefix="plt-tracking-") as folder:
        began = time.perf_counter()
        tracker = MlflowTracker(Home(Path(folder)), f"cold-{time.time_ns()}", patience=0.0)
        tracker.start_study(STUDY)
        tracker.start_trial(TRIAL)
        train(tracker, COLD_STEPS, 10, amount)
        return time.perf_counter() - began


def report(result: dict[str, Any]) -> str:
    """A table for people."""
    machine = result["machine"]
    lines = [
        f"{machine['system']}, {machine['cpus']} CPUs, load {machine['load']:.1f}; commit {result['commit']}; "
        f"{result['repeats']} turns of {result['steps']} steps",
        f"{'':22}" + "".join(f"{load:>24}{'wall':>9}" for load in result["ratios"]) + f"{'lost at the start':>20}",
    ]
    for name in SETTINGS[1:]:
        cells = ""
        for rows in result["ratios"].values():
            row = rows[name]
            cells += f"{row['without_queue']:10.3f} ({row['low']:.3f}-{row['high']:.3f}){row['wall']:9.3f}"
        lines.append(f"{name:22}{cells}{result['seconds_lost_at_the_start'][name]:18.2f} s")
    for name in SETTINGS[1:]:
        ratio = result["ratios"]["realistic"][name]["without_queue"]
        lines.append(f"{name}: {ratio:.3f}, target {TARGET}: {'met' if ratio < TARGET else 'missed'}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and keep the numbers if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, help="blocks of steps per setting")
    parser.add_argument("--steps", type=int, default=2000, help="steps per block")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--cold", nargs=3, metavar=("SETTING", "URI", "AMOUNT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cold:
        print(cold_block(arguments.cold[0], arguments.cold[1], int(arguments.cold[2])), flush=True)
        os._exit(0)
    result = run(arguments.repeats, arguments.steps)
    print(report(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
