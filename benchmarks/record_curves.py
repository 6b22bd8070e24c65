"""Records the learning curve of every point of a small study, for `benchmarks.pruning` to replay.

    python -m benchmarks.record_curves {code,phop}

The study is `benchmarks/data/NAME_study.yaml`, the recording `benchmarks/data/NAME_curves.json`. Every configuration of
the grid is trained to the end with the study's first seed on one CPU thread, and every architecture's decoding is
measured once. The recording is written after each of them and what it holds is not done again, so it can be stopped
and started. Learning curves are the same on every run of one machine; the measured decode ratios are not.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.commit import commit
from orchestrator.configuration import Configuration, resolve
from orchestrator.spec import StudySpec, load_spec
from orchestrator.spec.points import enumerate_points
from workers.config.counts import flops_per_token
from workers.data import prepare
from workers.evaluation.decode_benchmark import measure
from workers.evaluation.hardware import hardware
from workers.models import LoopedTransformer
from workers.training import Trainer

DATA = Path(__file__).parent / "data"
DIGITS = 6
"""Significant digits kept of every number that is not whole."""


def configurations(spec: StudySpec) -> list[Configuration]:
    """The distinct configurations of a study's grid, in the order of its points."""
    points = enumerate_points(spec)
    if points is None:
        raise ValueError(f"the search space of {spec.name} cannot be listed; give every range choices or a step")
    found = (resolve(spec, point) for point in points)
    return list({configuration.fingerprint: configuration for configuration in found}.values())


def decoding(configuration: Configuration, seed: int) -> dict[str, float]:
    """The decode benchmark's metrics of an architecture."""
    if configuration.benchmark_model is None or configuration.benchmark is None:
        return {}
    metrics, _ = measure(configuration.benchmark_model, configuration.benchmark, seed)
    return rounded(metrics)


def curve(configuration: Configuration, seed: int, data_folder: Path) -> dict[str, Any]:
    """One training run: the tokens at each evaluation, and each metric's values there."""
    dataset = prepare(configuration.data, data_folder)
    model = LoopedTransformer(configuration.model, seed=seed, device="cpu")
    trainer = Trainer(model, dataset, configuration.train, seed=seed)
    tokens: list[int] = []
    metrics: dict[str, list[float]] = {}
    for report in trainer.run():
        evaluated = {name: value for name, value in report.metrics.items() if not name.startswith("train/")}
        if evaluated:
            tokens.append(report.tokens)
            for name, value in rounded(evaluated).items():
                metrics.setdefault(name, []).append(value)
    return {"tokens": tokens, "metrics": metrics, "train_seconds": round(trainer.training_seconds, 2)}


def rounded(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics with `DIGITS` significant digits, whole numbers as they are."""
    return {name: value if value == round(value) else float(f"{value:.{DIGITS}g}") for name, value in metrics.items()}


def record(spec: StudySpec, found: dict[str, Any], data_folder: Path) -> Iterator[dict[str, Any]]:
    """The recording after each further piece of work."""
    seed = spec.seeds[0]
    everything = configurations(spec)
    for configuration in everything:
        name = configuration.architecture
        if name is not None and name not in found["architectures"]:
            found["architectures"][name] = decoding(configuration, seed)
            yield found
    for configuration in everything:
        if configuration.fingerprint not in found["configurations"]:
            found["configurations"][configuration.fingerprint] = {
                "params": dict(configuration.params),
                "architecture": configuration.architecture,
                "num_loops": configuration.model.num_loops,
                "flops_per_token": flops_per_token(configuration.model, configuration.data.seq_len),
                "beforehand": rounded(configuration.metrics_beforehand()),
                **curve(configuration, seed, data_folder),
            }
            yield found


def main() -> None:
    """Record what is missing; print one line per piece of work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["code", "phop"])
    parser.add_argument("--data", type=Path, default=Path("plt-home") / "data", help="folder of prepared data")
    arguments = parser.parse_args()
    os.nice(10)
    torch.set_num_threads(1)
    spec = load_spec(DATA / f"{arguments.name}_study.yaml")
    path = DATA / f"{arguments.name}_curves.json"
    empty = {"study": spec.name, "commit": commit(), "machine": hardware(), "architectures": {}, "configurations": {}}
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty
    started = time.perf_counter()
    for recorded in record(spec, found, arguments.data):
        aside = path.with_suffix(".aside")
        aside.write_text(json.dumps(recorded, separators=(",", ":")) + "\n", encoding="utf-8")
        aside.replace(path)
        print(
            f"{len(recorded['architectures'])} architectures, {len(recorded['configurations'])} configurations, "
            f"{time.perf_counter() - started:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
