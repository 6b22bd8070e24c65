"""What does a trial cost besides its training? Our driver beside Ray Tune, on trials that do nothing.

    python -m benchmarks.orchestration overhead [--trials 100] [--repeats 5] [--peer-repeats 1] [--json PATH]
    python -m benchmarks.orchestration scale    [--trials 10000] [--json PATH]
    python -m benchmarks.orchestration resume   [--trials 1000] [--json PATH]

overhead: trials of three reports each on two CPUs, everything tracked in MLflow on SQLite, in turns with Ray Tune +
OptunaSearch + MLflowLoggerCallback and with Ray Tune + OptunaSearch + `reuse_actors` without MLflow. Ray is started and
the database made before any clock starts; starting the actors counts for everybody. Targets: a hundred times less
per trial than the first, and under 30 ms.

scale: the same trials ten thousand times; the last thousand take at most 1.5 times the first thousand, and memory of
the driver stays flat.

resume: a study of a thousand finished trials whose driver was killed; from the start of `plt resume` to the first
attempt that begins, and how much of that is Ray's own start.
"""

import argparse
import json
import logging
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.commit import commit
from orchestrator.backends.placement import Placement
from orchestrator.backends.ray_backend import RayBackend
from orchestrator.corpora import corpus_fingerprints
from orchestrator.home import Home
from orchestrator.listener import Silence
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.runner import Runner
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from workers.protocol import MetricReport, Request, ShouldStop, TrialOutcome

REPORTS = 3
SLOTS = 2


def no_work(request: Request, should_stop: ShouldStop) -> Iterator[MetricReport | TrialOutcome]:
    """Three reports and an outcome that depends on the request, at once."""
    del should_stop
    loss = request.train.lr + request.train.weight_decay / 100  # type: ignore[union-attr]
    for step in range(1, REPORTS + 1):
        yield MetricReport(step=step, tokens=step * 100, metrics={"train/loss": loss + 1 / step}, seconds=0.001 * step)
    yield TrialOutcome(metrics={"val/bits_per_byte": loss, "val/accuracy": 1 - loss}, seconds=0.004)


def study_spec(trials: int, sampler: str) -> StudySpec:
    """Four parameters and two objectives."""
    return StudySpec.from_plain(
        {
            "name": f"no-work-{trials}",
            "model": {"variant": "plt", "d_model": 16, "num_layers": 1, "num_heads": 2},
            "data": {"corpus": "stdlib", "seq_len": 64},
            "train": {"tokens": 1000, "batch_size": 2},
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
            "sampler": {"name": sampler},
            "budget": {"configurations": trials},
        }
    )


class Pace(Silence):
    """Notes when trials end, and what the driver's memory is then."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.megabytes: list[float] = []
        self._process = psutil.Process()

    def trial_ended(self, trial: TrialRecord) -> None:
        """One more."""
        del trial
        self.seconds.append(time.perf_counter())
        if len(self.seconds) % 250 == 0:
            self.megabytes.append(self._process.memory_info().rss / 2**20)


def made_database(folder: Path) -> Home:
    """A home whose MLflow database exists."""
    home = Home(folder)
    home.root.mkdir(parents=True, exist_ok=True)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
    import mlflow

    mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
    mlflow.search_experiments()
    return home


def ours(trials: int, sampler: str = "auto", pace: Pace | None = None) -> float:
    """Seconds per trial, from the opening of the study until everything is tracked."""
    with tempfile.TemporaryDirectory() as folder:
        home, spec = made_database(Path(folder)), study_spec(trials, sampler)
        began = time.perf_counter()
        backend = RayBackend(train=Placement(gpus=0), execute=no_work, hardware=lambda: {"device": "none"})
        tracker = MlflowTracker(home, spec.name)
        with Study.open(spec, home, ahead=backend.slots) as study:
            record = Runner(
                spec=spec,
                study=study,
                backend=backend,
                tracker=tracker,
                home=home,
                clock=time.monotonic,
                listener=pace or Silence(),
            ).run()
        tracker.close()
        took = time.perf_counter() - began
        backend.close()
        refuse_incomplete(record, trials)
    return took / trials


def refuse_incomplete(record: StudyRecord, trials: int) -> None:
    """A number is only worth something when all the work was done."""
    complete = sum(trial.values is not None for trial in record.trials)
    if complete != trials:
        raise RuntimeError(f"{complete} of {trials} trials are complete: {record.message}")


def tune(trials: int, *, tracked: bool) -> float:
    """Seconds per trial of Ray Tune + OptunaSearch: with MLflow's callback, or with reused actors and no MLflow."""
    from ray import tune as ray_tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    class Nothing(ray_tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.loss = config["lr"] + config["weight_decay"] / 100
            self.step_number = 0

        def step(self) -> dict[str, Any]:
            self.step_number += 1
            return {"loss": self.loss + 1 / self.step_number, "done": self.step_number == REPORTS}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.setup(new_config)
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            del checkpoint_dir

        def load_checkpoint(self, checkpoint: Any) -> None:
            del checkpoint

    with tempfile.TemporaryDirectory() as folder:
        made_database(Path(folder))
        uri = os.environ["MLFLOW_TRACKING_URI"]
        callbacks = [MLflowLoggerCallback(tracking_uri=uri, experiment_name="tune")] if tracked else []
        began = time.perf_counter()
        results = ray_tune.Tuner(
            ray_tune.with_resources(Nothing, {"cpu": 1}),
            param_space={
                "num_loops": ray_tune.choice([1, 2, 3]),
                "window": ray_tune.choice([8, 16]),
                "lr": ray_tune.loguniform(1e-4, 1e-1),
                "weight_decay": ray_tune.uniform(0.0, 0.3),
            },
            tune_config=ray_tune.TuneConfig(
                num_samples=trials,
                max_concurrent_trials=SLOTS,
                reuse_actors=not tracked,
                search_alg=OptunaSearch(metric="loss", mode="min", seed=0),
            ),
            run_config=ray_tune.RunConfig(storage_path=folder, callbacks=callbacks, verbose=0),
        ).fit()
        took = time.perf_counter() - began
        if len(results) != trials or results.num_errors:
            raise RuntimeError(f"Ray Tune finished {len(results)} of {trials} trials, {results.num_errors} with errors")
    return took / trials


def overhead(trials: int, repeats: int, peer_repeats: int) -> dict[str, Any]:
    """All contestants in turns."""
    start_ray()
    contestants: dict[str, tuple[int, Callable[[], float]]] = {
        "plt, MLflow": (repeats, lambda: ours(trials)),
        "Ray Tune, reuse_actors, no MLflow": (peer_repeats, lambda: tune(trials, tracked=False)),
        "Ray Tune, MLflowLoggerCallback": (peer_repeats, lambda: tune(trials, tracked=True)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(max(repeats, peer_repeats)):
        for name, (turns, run) in contestants.items():
            if turn < turns:
                seconds[name].append(run())
                print(f"{name}: {seconds[name][-1] * 1000:.1f} ms per trial", file=sys.stderr)
    medians = {name: median(values) for name, values in seconds.items()}
    plt, reused, tracked = medians.values()
    return {
        "what": f"{trials} trials of {REPORTS} reports that do no work, {SLOTS} slots, seconds per trial",
        "seconds per trial": seconds,
        "median ms per trial": {name: value * 1000 for name, value in medians.items()},
        "Ray Tune with MLflow over plt": tracked / plt,
        "Ray Tune with reuse_actors over plt": reused / plt,
        "targets": {"Ray Tune with MLflow over plt": 100, "ms per trial": 30},
    }


def scale(trials: int) -> dict[str, Any]:
    """The pace of a long study."""
    start_ray()
    pace = Pace()
    per_trial = ours(trials, pace=pace)
    thousand = min(1000, trials // 2)
    first, last = (
        (pace.seconds[end] - pace.seconds[end - thousand]) * 1000 / thousand
        for end in (thousand, len(pace.seconds) - 1)
    )
    return {
        "what": f"{trials} trials of {REPORTS} reports that do no work, {SLOTS} slots, sampler auto",
        "ms per trial, tracking included": per_trial * 1000,
        "ms per trial, first thousand": first,
        "ms per trial, last thousand": last,
        "last over first": last / first,
        "driver RSS in MiB, every 250 trials": pace.megabytes,
        "peak driver RSS in MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "targets": {"last over first": 1.5},
    }


def start_ray() -> None:
    """One cluster on this machine for everybody."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(
        address="local",
        num_cpus=SLOTS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=256 * 2**20,
    )


def be_killed(folder: Path, trials: int) -> None:
    """Be the driver of a study that has finished so many trials when it is killed while two more run."""
    home, spec = made_database(folder), real_spec(trials)
    tracker = MlflowTracker(home, spec.name)
    study = Study.open(spec, home, corpora=corpus_fingerprints(spec))
    tracker.start_study(study.record())
    for number in range(trials):
        trial = begun(study)
        tracker.start_trial(trial)
        study.end_attempt(trial.number, TrialOutcome(info={"hardware": {"kind": "cpu"}}))
        tracker.finish_trial(study.complete(trial.number, {"tasks/phop/accuracy": 1 / (1 + number)}))
    tracker.close()
    begun(study)
    begun(study)
    os.kill(os.getpid(), signal.SIGKILL)


def begun(study: Study) -> TrialRecord:
    """The next trial, its first attempt begun."""
    trial = study.ask()
    if trial is None:
        raise RuntimeError(study.why_exhausted())
    study.start_attempt(trial.number)
    return study.trial(trial.number)


def real_spec(trials: int) -> StudySpec:
    """A study whose trials really train, for a moment."""
    return StudySpec.from_plain(
        {
            "name": "resumed",
            "model": {"variant": "plt", "window": 8, "d_model": 16, "num_layers": 1, "num_heads": 2},
            "data": {"corpus": "phop", "seq_len": 16, "eval_sequences": 8},
            "train": {"tokens": 512, "batch_size": 4, "precision": "float32", "compile": "off", "evaluations": 1},
            "search": {"lr": {"low": 1e-4, "high": 1e-1, "log": True}},
            "objectives": [{"metric": "tasks/phop/accuracy", "direction": "maximize"}],
            "sampler": {"name": "random"},
            "budget": {"configurations": trials + 2},
        }
    )


def resume(trials: int, backend: str) -> dict[str, Any]:
    """From the start of the command to the first attempt that begins, in seconds."""
    from orchestrator.studies import read_study

    with tempfile.TemporaryDirectory() as folder:
        imports = "from pathlib import Path; from benchmarks.orchestration import be_killed"
        code = f"{imports}; be_killed(Path({folder!r}), {trials})"
        killed = subprocess.run([sys.executable, "-c", code], check=False)
        if killed.returncode != -signal.SIGKILL:
            raise RuntimeError(f"the driver to be killed ended by itself with {killed.returncode}")
        environment = {**os.environ, "PLT_HOME": folder}
        environment.pop("MLFLOW_TRACKING_URI", None)
        command = [sys.executable, "-m", "orchestrator.main", "resume", "resumed", "--backend", backend, "--quiet"]
        began = time.time()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        took = time.time() - began
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        record = read_study(Home(Path(folder)), "resumed")
        started = min(trial.attempts[-1].started.timestamp() for trial in record.trials[-2:])
        refuse_incomplete(record, trials + 2)
    return {
        "what": f"plt resume --backend {backend} of a study with {trials} finished trials and 2 lost ones",
        "seconds to the first attempt": started - began,
        "seconds in all": took,
        "target": 5.0,
    }


def ray_start() -> float:
    """Seconds that importing Ray and starting it on this machine take by themselves."""
    code = "from orchestrator.backends.ray_backend import RayBackend; RayBackend().close()"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure, print, and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["overhead", "scale", "resume"])
    parser.add_argument("--trials", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-repeats", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.part == "overhead":
        result = overhead(given.trials or 100, given.repeats, given.peer_repeats)
    elif given.part == "scale":
        result = scale(given.trials or 10_000)
    else:
        result = {name: resume(given.trials or 1000, name) for name in ("local", "ray")}
        result["seconds that Ray's own start takes"] = ray_start()
    result |= {"machine": f"{os.cpu_count()} cores, {platform.platform()}", "commit": commit()}
    text = json.dumps(result, indent=1)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
