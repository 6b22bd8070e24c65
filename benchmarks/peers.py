"""Decode steps of this project beside the engines that a researcher would use instead, on one shape.

    python -m benchmarks.peers [--context 512] [--blocks 12] [--steps 8] [--json PATH]

Engines live in environments of their own: `make interop` builds them and names their Pythons in the variable
PLT_ENGINE_PYTHONS, separated by colons; what no environment has is left out and said so. Every engine runs random
bfloat16 weights of the same 111 million parameters (`plt bench decode`'s shape), on two threads, from CONTEXT tokens
on. They take turns, a block of steps each, in one order and then backwards, so that whatever else the machine does hits
all alike; quote the ratios before the milliseconds.

    rows        sequences in a batch; our PLT settings take R rows per sequence in one pass
    of plain    median over blocks of the block's median step, over the plain model's of the same turn
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import IO, Any

import torch

from benchmarks.commit import commit
from benchmarks.peer_process import ENGINES, WARM_UP
from workers.config import ModelConfig, variant_knobs
from workers.evaluation.decode_grid import SHAPE
from workers.evaluation.hardware import hardware, read_bandwidth
from workers.interop.export import export_gguf, export_model
from workers.interop.layout import Layout
from workers.models import LoopedTransformer, save_pretrained

PACKAGES = {"ours": "torch", "llama.cpp": "llama_cpp", "vLLM llama": "vllm", "vLLM loop": "vllm"}
"""The module that an environment must have; others need `transformers`, which this one has."""
BASE = "plain, 1 rows"
SETTLE_SECONDS = 0.3
"""Between two blocks: the threads of some engines go on spinning for a while."""


class Peer:
    """A running engine."""

    def __init__(self, name: str, python: str, folder: Path, context: int, steps: int) -> None:
        self.name = name
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        openmp = Path(python).parents[1] / "lib" / "libiomp5.so"
        if name.startswith("vLLM") and openmp.exists():
            environment["LD_PRELOAD"] = str(openmp)  # as vLLM's documentation asks for
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (as long as the process)
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peer_process", name, str(folder), str(context), str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self.settings: list[str] = json.loads(self._answer())

    def steps(self, setting: str, count: int) -> list[float]:
        """Seconds of so many steps."""
        requests: IO[str] = self._process.stdin  # type: ignore[assignment]
        print(setting, count, file=requests, flush=True)
        seconds: list[float] = json.loads(self._answer())
        return seconds

    def end(self) -> None:
        """Let it go."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> str:
        answers: IO[str] = self._process.stdout  # type: ignore[assignment]
        line = answers.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"{self.name} ended: {self._log.read()[-2000:]}")
        return line


def write_models(folder: Path, length: int) -> None:
    """The shape's plain model as Llama folder and GGUF, and as the two-pass loop that vLLM knows."""
    sizes = {**SHAPE, "max_position_embeddings": length}
    (folder / "shape.json").write_text(json.dumps(sizes), encoding="utf-8")
    for name, variant, layout in (("llama", "vanilla", Layout.LLAMA), ("loop", "iquest-loop", Layout.LOOP)):
        model = LoopedTransformer(ModelConfig(**sizes, **variant_knobs(variant)), dtype=torch.bfloat16)
        save_pretrained(model, folder / f"{name}-checkpoint")
        export_model(folder / f"{name}-checkpoint", folder / name, layout=layout)
    export_gguf(folder / "llama-checkpoint", folder / "gguf")


def python_with(package: str) -> str | None:
    """The first environment that has a package."""
    for python in (sys.executable, *filter(None, os.environ.get("PLT_ENGINE_PYTHONS", "").split(":"))):
        if subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def run(context: int, blocks: int, steps: int) -> dict[str, Any]:
    """Measure."""
    length = WARM_UP + blocks * steps
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_models(folder, context + length + 16)
        peers, missing = [], []
        try:
            for name in ENGINES:
                python = python_with(PACKAGES.get(name, "transformers"))
                if python is None:
                    missing.append(name)
                    continue
                print(f"starting {name}", file=sys.stderr, flush=True)
                peers.append(Peer(name, python, folder, context, length))
            order = [(peer, setting) for peer in peers for setting in peer.settings]
            seconds: dict[str, list[list[float]]] = {setting: [] for _, setting in order}
            for block in range(blocks):
                for peer, setting in order if block % 2 == 0 else reversed(order):
                    time.sleep(SETTLE_SECONDS)
                    seconds[setting].append(peer.steps(setting, steps))
        finally:
            for peer in peers:
                peer.end()
    medians = {setting: [median(block) for block in found] for setting, found in seconds.items()}
    return {
        "commit": commit(),
        "machine": {**hardware(), "read_bandwidth": read_bandwidth()},
        "shape": dict(SHAPE),
        "context": context,
        "blocks": blocks,
        "steps_per_block": steps,
        "missing": missing,
        "settings": {
            setting: {
                "ms": 1e3 * median(found),
                "ms_best_block": 1e3 * min(found),
                "over_plain": median(own / plain for own, plain in zip(found, medians[BASE], strict=True)),
            }
            for setting, found in medians.items()
        },
    }


def report(result: dict[str, Any]) -> str:
    """A table for people."""
    machine = result["machine"]
    lines = [
        f"{machine['device']}, {machine['threads']} threads, reads {machine['read_bandwidth'] / 1e9:.1f} GB/s; commit "
        f"{result['commit']}; {result['blocks']} blocks of {result['steps_per_block']} steps at {result['context']}",
        f"{'':32}{'ms/step':>9}{'best':>8}{'of plain':>10}",
    ]
    for setting, row in result["settings"].items():
        lines.append(f"{setting:32}{row['ms']:9.2f}{row['ms_best_block']:8.2f}{row['over_plain']:10.3f}")
    if result["missing"]:
        lines.append(f"not installed: {', '.join(result['missing'])}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and keep the numbers if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, default=512, help="tokens in the caches when timing starts")
    parser.add_argument("--blocks", type=int, default=12, help="turns of every setting")
    parser.add_argument("--steps", type=int, default=8, help="steps per turn")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    result = run(arguments.context, arguments.blocks, arguments.steps)
    print(report(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
