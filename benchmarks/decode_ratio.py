"""Does a Parallel Loop Transformer decode as fast as a plain one? About 100 million parameters, side by side.

    python -m benchmarks.decode_ratio [--precision bfloat16] [--context 512] [--steps 150] [--json PATH]

One set of random weights under four settings: plain (R = 1), PLT with R = 2 and R = 3 (window 64), and the sequential
loop R = 2. They take turns step by step, so a busy machine slows all of them alike; quote the ratios (medians over
pairs of steps) before the milliseconds. Targets: PLT R = 2 at most 1.10 of plain and at most 0.58 of the sequential
loop, and its KV cache within 64 / S of plain.
"""

import argparse
import json
import platform
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from workers.config import ModelConfig, variant_knobs
from workers.config.counts import kv_bytes_per_sequence, parameter_count
from workers.decoding import Decoder, DecoderWeights
from workers.device_lock import DeviceLock
from workers.evaluation.decode_check import check_decoder
from workers.evaluation.decode_timing import WARM_UP_STEPS, time_steps
from workers.evaluation.hardware import hardware, read_bandwidth
from workers.models import LoopedTransformer, share_weights

SIZES: dict[str, Any] = {
    "vocab_size": 8192,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
SETTINGS = {
    "plain R=1": variant_knobs("vanilla"),
    "PLT R=2": variant_knobs("plt"),
    "PLT R=3": variant_knobs("plt") | {"num_loops": 3},
    "sequential R=2": variant_knobs("loop"),
}
TARGETS = {"PLT R=2 over plain": 1.10, "PLT R=2 over sequential R=2": 0.58}


def run(precision: str, context: int, steps: int) -> dict[str, Any]:
    """One measurement as plain data."""
    dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[precision]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    widest = ModelConfig(**SIZES, **SETTINGS["PLT R=3"])
    model = LoopedTransformer(widest, device=device, dtype=dtype)
    weights = DecoderWeights(model, rows=3)
    length = context + WARM_UP_STEPS + steps
    ids = torch.randint(widest.vocab_size, (1, length), generator=torch.Generator().manual_seed(0)).to(device)
    decoders: dict[str, Decoder] = {}
    for name, knobs in SETTINGS.items():
        variant = share_weights(model, ModelConfig(**SIZES, **knobs))
        decoders[name] = Decoder(variant, 1, length, weights=weights)
        check_decoder(variant, decoders[name], ids[:, :96])
        decoders[name].prefill(ids[:, :context], last_only=True)
    kv_bytes = {name: decoder.kv_bytes() for name, decoder in decoders.items()}
    timed = time_steps(list(decoders.values()), ids[:, context], steps, time.perf_counter)
    seconds = dict(zip(decoders, timed, strict=True))
    size = torch.finfo(dtype).bits // 8
    return {
        "machine": hardware() | {"system": platform.platform(), "read_bandwidth": read_bandwidth()},
        "commit": commit(),
        "parameters": parameter_count(replace(widest, num_loops=1)),
        "precision": precision,
        "context": context,
        "steps": steps,
        "ratios": {
            "PLT R=2 over plain": ratio(seconds, "PLT R=2", "plain R=1"),
            "PLT R=3 over plain": ratio(seconds, "PLT R=3", "plain R=1"),
            "PLT R=2 over sequential R=2": ratio(seconds, "PLT R=2", "sequential R=2"),
            "sequential R=2 over plain": ratio(seconds, "sequential R=2", "plain R=1"),
        },
        "settings": {
            name: {
                "ms_p50": 1e3 * median(times),
                "ms_p95": 1e3 * float(np.percentile(times, 95)),
                "ms_best": 1e3 * min(times),
                "kv_bytes": kv_bytes[name],
                "kv_bytes_formula": kv_bytes_per_sequence(decoders[name].config, context, size),
            }
            for name, times in seconds.items()
        },
    }


def ratio(seconds: dict[str, list[float]], name: str, other: str) -> float:
    """Median over pairs of neighbouring steps."""
    return median(a / b for a, b in zip(seconds[name], seconds[other], strict=True))


def commit() -> str:
    """The checked-out commit, marked when files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def report(result: dict[str, Any]) -> str:
    """A table for people, then the ratios against their targets."""
    machine, context = result["machine"], result["context"]
    plain = result["settings"]["plain R=1"]
    lines = [
        f"{result['parameters'] / 1e6:.0f} M parameters, {result['precision']}, batch 1, context {context}, "
        f"{result['steps']} steps each, in turn; commit {result['commit']}",
        f"{machine['device']}, {machine['threads']} threads, reads {machine['read_bandwidth'] / 1e9:.1f} GB/s, "
        f"torch {machine['torch']}",
        f"{'':16}{'ms p50':>9}{'ms p95':>9}{'ms best':>9}{'KV bytes':>12}{'formula':>12}{'of plain':>10}",
    ]
    for name, row in result["settings"].items():
        lines.append(
            f"{name:16}{row['ms_p50']:9.2f}{row['ms_p95']:9.2f}{row['ms_best']:9.2f}{row['kv_bytes']:12,}"
            f"{row['kv_bytes_formula']:12,}{row['kv_bytes'] / plain['kv_bytes']:10.4f}"
        )
    for name, value in result["ratios"].items():
        target = TARGETS.get(name)
        verdict = "" if target is None else f"   target {target:.2f}: {'met' if value <= target else 'missed'}"
        lines.append(f"{name:30}{value:6.3f}{verdict}")
    extra = result["settings"]["PLT R=2"]["kv_bytes"] / plain["kv_bytes"] - 1
    lines.append(f"PLT R=2 adds {extra:.4f} to plain's KV cache; 64 / S is {64 / context:.4f}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and keep the numbers if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--context", type=int, default=512, help="slots in the caches when timing starts")
    parser.add_argument("--steps", type=int, default=150, help="timed steps per setting")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    with DeviceLock("cpu").exclusive():  # studies on this machine hold their training back
        result = run(arguments.precision, arguments.context, arguments.steps)
    print(report(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
