"""What several workers of one trial gain and change on this machine: steps per second and losses beside one worker's.

    python benchmarks/gang_check.py --workers 2 --d-model 512 --layers 8 --loops 2

On a GPU machine every worker has a GPU of its own (NCCL); without GPUs the workers share the cores (gloo), which shows
that losses agree and what agreeing costs. Needs torch, numpy and safetensors only.
"""

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from workers.config import DataConfig, ModelConfig, TrainConfig, variant_knobs
from workers.execution import execute
from workers.parallel.processes import run_together
from workers.protocol import Gang, MetricReport, TrialOutcome, TrialRequest, never_stop


def trial(folder: Path, arguments: argparse.Namespace) -> TrialRequest:
    """A PLT model with gate and window on p-hop data."""
    model = ModelConfig(
        vocab_size=4,
        hidden_size=arguments.d_model,
        intermediate_size=4 * arguments.d_model,
        num_hidden_layers=arguments.layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=arguments.seq_len,
        **{**variant_knobs("plt"), "num_loops": arguments.loops, "window": 16},
    )
    tokens = arguments.steps * arguments.batch * arguments.seq_len
    return TrialRequest(
        attempt_id="check",
        model=model,
        data=DataConfig(corpus="phop", seq_len=arguments.seq_len, eval_sequences=16),
        train=TrainConfig(tokens=tokens, batch_size=arguments.batch, evaluations=1, precision="float32", compile="off"),
        seed=0,
        data_folder=str(folder / "data"),
        folder=str(folder / "attempt"),
        threads=arguments.threads,
    )


def measured(request: TrialRequest) -> tuple[list[float], float, float]:
    """Training losses, held-out loss, and tokens per second of the last report."""
    items = run_together(request, None, never_stop) if request.gang is not None else execute(request)
    losses, speed, held_out = [], 0.0, 0.0
    for item in items:
        if isinstance(item, MetricReport):
            losses.append(item.metrics["train/loss"])
            speed = item.metrics["train/tokens_per_second"]
        elif isinstance(item, TrialOutcome):
            if item.failure is not None:
                raise SystemExit(f"{item.failure.reason}: {item.failure.message}\n{item.failure.traceback}")
            held_out = item.metrics["val/loss"]
    return losses, held_out, speed


def main() -> None:
    """Print one line per way of training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("workers", 2), ("d-model", 64), ("layers", 2), ("loops", 2), ("batch", 16), ("steps", 40)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        one = trial(Path(folder) / "one", arguments)
        losses, held_out, speed = measured(one)
        print(f"1 worker          held-out {held_out:.6f}, {speed:,.0f} tokens/s")
        for parallel in ("ddp", "fsdp"):
            gang = Gang(workers=arguments.workers, parallel=parallel)  # type: ignore[arg-type]
            several = replace(trial(Path(folder) / parallel, arguments), gang=gang)
            theirs, theirs_held_out, theirs_speed = measured(several)
            apart = max(abs(a - b) / abs(a) for a, b in zip(losses, theirs, strict=True))
            print(
                f"{arguments.workers} workers, {parallel:<4}   held-out {theirs_held_out:.6f}, "
                f"{theirs_speed:,.0f} tokens/s ({theirs_speed / speed:.2f} x), "
                f"largest relative difference of a training loss {apart:.1e}"
            )


if __name__ == "__main__":
    main()
