"""Does the platform's own way of spending seeds and tokens reach the full grid's answer for a quarter of the compute?

    python -m benchmarks.quarter record [--processes 2]     # about an hour on two cores; can be stopped and started
    python -m benchmarks.quarter replay [--replays 20] [--json PATH]

`record` trains every configuration of `benchmarks/data/quarter_study.yaml` with every seed to its end, measures each
architecture's decoding once, and keeps the curves in `quarter_curves.json`. `replay` drives real studies, with the
platform's own runner, pruner, sampler, seeds and storage, on a backend that answers from these curves. Replays are
deterministic; they differ in which seed comes first and in the sampler's seed.

The truth is the full grid: what `plt recommend` says of it, and its front. Methods: the platform (`moasha`; seeds where
they can change the recommendation, or where `replicate: undecided` puts them; or without pruning, every configuration
once and then such seeds), and without pruning `random` and `tpe`, with one seed each or with five. Every method ends
when it has spent `BUDGET` of the full grid's training tokens, or earlier when it has nothing more to ask.

    answer       replays whose loop count is the truth's; sure: those that claim 95 %; wrong: sure, and another answer
    take         replays that take the truth's configuration, or one that the truth does not tell from it
    front        share of the true front that is found: a configuration that is no more costly (5 % for latency, none
                 for memory) and whose interval in the full grid reaches that of the front's
    tokens       spent, of the full grid's
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import optuna
import torch

from benchmarks.commit import commit
from benchmarks.record_curves import DATA, configurations, curve, decoding, rounded
from orchestrator.backends.local_backend import LocalBackend
from orchestrator.configuration import IDENTITY, Configuration
from orchestrator.configurations import ConfigurationRecord, group
from orchestrator.home import Home
from orchestrator.recommendation import Recommendation, recommend
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.runner import Runner
from orchestrator.spec import StudySpec, load_spec
from orchestrator.study import Study
from orchestrator.tracking.memory_tracker import MemoryTracker
from workers.config.counts import flops_per_token
from workers.evaluation.hardware import hardware
from workers.fingerprint import fingerprint
from workers.protocol import BenchmarkRequest, MetricReport, Request, ShouldStop, TrialOutcome, never_stop

SPEC, CURVES = DATA / "quarter_study.yaml", DATA / "quarter_curves.json"
BUDGET = 0.25
SAME_LATENCY = 1.05
PRUNER = {"name": "moasha", "reduction_factor": 3, "min_tokens": 37_888}
"""The first rung is a 27th of a trial."""


@dataclass(frozen=True)
class Method:
    """What a study says differently from the full grid."""

    name: str
    changes: Mapping[str, Any]
    seeds: int = 5
    configurations: int | None = None
    """How many are tried; None tries them all, if there are tokens for it."""


METHODS = (
    Method("platform", {"pruner": PRUNER, "replicate": "answer", "sampler": {"name": "random"}}),
    Method("platform, no pruner", {"replicate": "answer", "sampler": {"name": "random"}}),
    Method("platform, front's seeds", {"pruner": PRUNER, "replicate": "undecided", "sampler": {"name": "random"}}),
    Method("random, one seed", {"sampler": {"name": "random"}}, seeds=1),
    Method("random, five seeds", {"sampler": {"name": "random"}}, configurations=4),
    Method("tpe, one seed", {"sampler": {"name": "tpe"}}, seeds=1),
    Method("tpe, five seeds", {"sampler": {"name": "tpe"}}, configurations=4),
)


class Curves:
    """What was recorded, as the answers of a worker."""

    def __init__(self, recorded: Mapping[str, Any], spec: StudySpec) -> None:
        self._curves = recorded["configurations"]
        self._decoding = {
            fingerprint(one.benchmark_model.to_dict()): recorded["architectures"][one.architecture]
            for one in configurations(spec)
            if one.benchmark_model is not None and one.architecture in recorded["architectures"]
        }

    def execute(self, request: Request, should_stop: ShouldStop = never_stop) -> Iterator[MetricReport | TrialOutcome]:
        """Reports and outcome of a request, as they were recorded."""
        if isinstance(request, BenchmarkRequest):
            yield TrialOutcome(metrics=self._decoding[fingerprint(request.model.to_dict())])
            return
        identity = [IDENTITY, request.model.to_dict(), request.data.to_dict(), request.train.to_dict()]
        run = self._curves[fingerprint(identity)]["seeds"][str(request.seed)]
        metrics: dict[str, float] = {}
        for step, tokens in enumerate(run["tokens"], start=1):
            if should_stop():
                return
            metrics = {name: values[step - 1] for name, values in run["metrics"].items()}
            yield MetricReport(step=step, tokens=tokens, metrics=metrics, seconds=float(step))
        flops = self._curves[fingerprint(identity)]["flops_per_token"] * run["tokens"][-1]
        yield TrialOutcome(metrics={**metrics, "train/tokens": run["tokens"][-1], "train/flops": flops})


def drive(spec: StudySpec, curves: Curves, most_tokens: float) -> StudyRecord:
    """A whole study in a home of its own, ended once a further trial could make it spend more tokens than these."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        with Study.open(spec, home) as study:
            return Runner(
                spec=spec,
                study=study,
                backend=LocalBackend(execute=curves.execute, hardware=lambda: {"device": "recorded"}),
                tracker=MemoryTracker(spec.name),
                home=home,
                clock=lambda: 0.0,
                should_stop=lambda: _cannot_afford_a_trial(study.trials(), spec, most_tokens),
            ).run()


def _cannot_afford_a_trial(trials: tuple[TrialRecord, ...], spec: StudySpec, most_tokens: float) -> bool:
    idle = all(trial.state is not TrialState.RUNNING for trial in trials)
    return idle and tokens_spent(trials, spec) + float(spec.train.tokens or 0) > most_tokens


def tokens_spent(trials: tuple[TrialRecord, ...], spec: StudySpec) -> float:
    """Training tokens of all trials that ended."""
    whole = float(spec.train.tokens or 0)
    return sum(
        whole if trial.state is TrialState.COMPLETE else float(trial.stopped_at or 0)
        for trial in trials
        if trial.state.finished
    )


def changed(spec: StudySpec, method: Method, replay: int) -> StudySpec:
    """The study of a method; the replay's number draws the order of the seeds and seeds the sampler."""
    seeds = [int(seed) for seed in np.random.default_rng(replay).permutation(list(spec.seeds))][: method.seeds]
    plain = {**spec.to_plain(), **method.changes, "seeds": seeds}
    plain["sampler"] = {**plain["sampler"], "seed": replay}
    if method.configurations is not None:
        plain["budget"] = {**plain["budget"], "configurations": method.configurations}
    return StudySpec.from_plain(plain)


class Truth:
    """What the full grid with all seeds says."""

    def __init__(self, record: StudyRecord) -> None:
        self.found: Recommendation = recommend(record)
        self._known = {one.fingerprint: one for one in group(record)}
        self.front = [one for one in self._known.values() if one.on_front]
        self._metric = record.objectives[0].metric

    def takes(self, found: Recommendation) -> bool:
        """Whether a recommendation takes what the truth takes, or does not tell from it."""
        taken = {one.fingerprint for one in (self.found.configuration, *self.found.as_good) if one is not None}
        return found.configuration is not None and found.configuration.fingerprint in taken

    def share_of_front(self, record: StudyRecord) -> float:
        """How much of the true front is matched by the front of a study, judged by the full grid's values."""
        found = [self._known[one.fingerprint] for one in group(record) if one.on_front]
        return fmean(any(self._matches(one, wanted) for one in found) for wanted in self.front)

    def _matches(self, one: ConfigurationRecord, wanted: ConfigurationRecord) -> bool:
        mine, theirs = one.metrics[self._metric], wanted.metrics[self._metric]
        high, low = (
            each if each is not None else mean for each, mean in ((mine.high, mine.mean), (theirs.low, theirs.mean))
        )
        latency, kv = "decode/latency_ratio", "kv/bytes_per_sequence"
        return (
            high >= low
            and one.metrics[latency].mean <= SAME_LATENCY * wanted.metrics[latency].mean
            and one.metrics[kv].mean <= wanted.metrics[kv].mean
        )


def measured(
    method: Method, spec: StudySpec, curves: Curves, truth: Truth, replays: int, whole: float
) -> dict[str, Any]:
    """One method over all replays."""
    rows: list[dict[str, float]] = []
    for replay in range(replays):
        study = changed(spec, method, replay)
        record = drive(study, curves, BUDGET * whole)
        found = recommend(record)
        right = found.loops == truth.found.loops
        rows.append(
            {
                "answer": right,
                "sure": found.sure,
                "wrong": found.sure and not right,
                "take": truth.takes(found),
                "front": truth.share_of_front(record),
                "confidence": found.confidence,
                "tokens": tokens_spent(record.trials, study) / whole,
                "trials": len(record.trials),
            }
        )
    counted = {name: int(sum(row[name] for row in rows)) for name in ("answer", "sure", "wrong", "take")}
    means = {name: round(fmean(row[name] for row in rows), 4) for name in ("front", "confidence", "tokens", "trials")}
    return {"replays": replays, **counted, **means, "most_tokens": round(max(row["tokens"] for row in rows), 4)}


def replay(recorded: Mapping[str, Any], spec: StudySpec, replays: int) -> dict[str, Any]:
    """Every method against the truth."""
    curves = Curves(recorded, spec)
    full = drive(spec, curves, float("inf"))
    truth, whole = Truth(full), tokens_spent(full.trials, spec)
    return {
        "study": spec.name,
        "commit": commit(),
        "recorded_at": recorded["commit"],
        "budget": BUDGET,
        "truth": {
            "num_loops": truth.found.loops,
            "sure": truth.found.sure,
            "confidence": round(truth.found.confidence, 4),
            "configuration": None if truth.found.configuration is None else dict(truth.found.configuration.params),
            "on_the_front": len(truth.front),
            "trials": len(full.trials),
            "tokens": whole,
        },
        "methods": {method.name: measured(method, spec, curves, truth, replays, whole) for method in METHODS},
    }


def report(result: Mapping[str, Any]) -> str:
    """A table for people."""
    truth = result["truth"]
    lines = [
        f"full grid: R={truth['num_loops']}, {truth['configuration']}, "
        f"{'sure' if truth['sure'] else 'undecided'} ({100 * truth['confidence']:.1f} %), "
        f"{truth['trials']} trials, {truth['on_the_front']} configurations on the front",
        f"{'':26}{'answer':>8}{'sure':>6}{'wrong':>7}{'take':>6}{'front':>8}{'confidence':>12}{'tokens':>8}{'most':>7}{'trials':>8}",
    ]
    for name, row in result["methods"].items():
        lines.append(
            f"{name:26}{row['answer']:5d}/{row['replays']}{row['sure']:5d}{row['wrong']:7d}{row['take']:6d}"
            f"{row['front']:8.2f}{row['confidence']:12.3f}{row['tokens']:8.3f}{row['most_tokens']:7.3f}{row['trials']:8.1f}"
        )
    return "\n".join(lines)


def record(spec: StudySpec, path: Path, data_folder: Path, processes: int) -> None:
    """Train and measure what the file does not hold yet, writing it after every piece of work."""
    empty = {"study": spec.name, "commit": commit(), "machine": hardware(), "architectures": {}, "configurations": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty
    everything = configurations(spec)
    for one in everything:
        if one.architecture is not None and one.architecture not in found["architectures"]:
            found["architectures"][one.architecture] = decoding(one, spec.seeds[0])
            _write(path, found)
    missing = [
        (one, seed)
        for seed in spec.seeds
        for one in everything
        if str(seed) not in found["configurations"].get(one.fingerprint, {"seeds": {}})["seeds"]
    ]
    fresh = get_context("spawn")  # a fork would inherit the threads that decoding was measured with
    with ProcessPoolExecutor(processes, mp_context=fresh, initializer=_one_thread) as pool:
        running = {pool.submit(curve, one, seed, data_folder): (one, seed) for one, seed in missing}
        for done, future in enumerate(as_completed(running), start=1):
            one, seed = running[future]
            entry = found["configurations"].setdefault(one.fingerprint, _entry(one))
            entry["seeds"][str(seed)] = future.result()
            _write(path, found)
            print(f"{done} of {len(missing)} runs", flush=True)


def _entry(one: Configuration) -> dict[str, Any]:
    return {
        "params": dict(one.params),
        "architecture": one.architecture,
        "flops_per_token": flops_per_token(one.model, one.data.seq_len),
        "beforehand": rounded(one.metrics_beforehand()),
        "seeds": {},
    }


def _one_thread() -> None:
    os.nice(10)
    torch.set_num_threads(1)


def _write(path: Path, found: Mapping[str, Any]) -> None:
    aside = path.with_suffix(".aside")
    aside.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
    aside.replace(path)


def main() -> None:
    """Record or replay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="train the full grid once")
    recording.add_argument("--processes", type=int, default=2, help="trials at once, one thread each")
    recording.add_argument("--data", type=Path, default=Path("plt-home") / "data", help="folder of prepared data")
    replaying = commands.add_parser("replay", help="replay every method on the recording")
    replaying.add_argument("--replays", type=int, default=20, help="studies of every method")
    replaying.add_argument("--json", type=Path, help="also write the numbers here")
    for command in (recording, replaying):
        command.add_argument("--spec", type=Path, default=SPEC, help="the study of the full grid")
        command.add_argument("--curves", type=Path, default=CURVES, help="the recording")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spec = load_spec(arguments.spec)
    if arguments.command == "record":
        record(spec, arguments.curves, arguments.data, arguments.processes)
        return
    result = replay(json.loads(arguments.curves.read_text(encoding="utf-8")), spec, arguments.replays)
    print(report(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
