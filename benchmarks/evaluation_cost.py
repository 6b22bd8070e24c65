"""What share of a quickstart trial goes into evaluations.

    python -m benchmarks.evaluation_cost [experiments/quickstart.yaml]

Trains the study's first and last point as a trial does, in this process, and times every evaluation apart.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from orchestrator.configuration import resolve
from orchestrator.spec import load_spec
from orchestrator.spec.points import enumerate_points
from workers.data import prepare
from workers.models import LoopedTransformer
from workers.training import Trainer
from workers.training.trainer import evaluate, evenly_spaced


def main() -> None:
    parser = argparse.ArgumentParser(description="evaluation time over trial time")
    parser.add_argument("spec", type=Path, nargs="?", default=Path("experiments/quickstart.yaml"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    spec = load_spec(given.spec)
    points = enumerate_points(spec) or [{}]
    for params in (points[0], points[-1]):
        configuration = resolve(spec, params)
        dataset = prepare(configuration.data, Path("plt-home/data"))
        model = LoopedTransformer(configuration.model, seed=0)
        started = time.perf_counter()
        trainer = Trainer(model, dataset, configuration.train, seed=0)
        for _ in trainer.run():
            pass
        whole = time.perf_counter() - started
        data = dataset.evaluation_set()
        started = time.perf_counter()
        evaluate(model, data, configuration.train.micro_batch_size or configuration.train.batch_size)
        once = time.perf_counter() - started
        count = len(evenly_spaced(trainer.steps, configuration.train.evaluations))
        share = count * once / whole
        print(json.dumps({"params": dict(params), "seconds": round(whole, 1), "evaluation_share": round(share, 3)}))


if __name__ == "__main__":
    main()
