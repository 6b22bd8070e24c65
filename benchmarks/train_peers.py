"""Optimizer steps of this project's plain transformer beside transformers' Llama of the same shape.

    python -m benchmarks.train_peers [--shape 3M] [--batch 4] [--seq 512] [--steps 10] [--precision float32]

Both train on the same tokens with fused AdamW and clipped gradients, in the loop that nanoGPT has (forward, backward,
clip, step, gradients to None), as they are and with torch.compile. They take turns step by step, in order and back:
quote the ratios before the milliseconds. Needs `transformers` (the extra `interop`).

    of ours     median over pairs of neighbouring steps, over our own steps of the same kind (compiled or not)
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.commit import commit
from workers.config import ModelConfig, TrainConfig
from workers.config.counts import parameter_count
from workers.evaluation.hardware import hardware
from workers.evaluation.train_grid import SHAPES
from workers.models import LoopedTransformer
from workers.training.stepper import make_optimizer, summed_loss

Step = Callable[[], float]
"""One optimizer step; gives the loss."""
WARM_UP = 3


def looped(config: ModelConfig, ids: torch.Tensor, precision: str, *, compiled: bool) -> Step:
    """A step of ours."""
    model = LoopedTransformer(config)
    loss_of = torch.compile(summed_loss, dynamic=False) if compiled else summed_loss
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    return _step(model, lambda: loss_of(model, inputs, targets) / targets.numel(), precision)


def llama(config: ModelConfig, ids: torch.Tensor, precision: str, *, compiled: bool) -> Step:
    """A step of transformers' Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            max_position_embeddings=config.max_position_embeddings,
            tie_word_embeddings=False,
            use_cache=False,
        )
    )
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(config)
    run = torch.compile(model, dynamic=False) if compiled else model
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    return _step(model, lambda: run(input_ids=inputs, shift_labels=targets, labels=targets).loss, precision)


def _step(model: torch.nn.Module, loss_of: Callable[[], torch.Tensor], precision: str) -> Step:
    optimizer = make_optimizer(model, TrainConfig())  # type: ignore[arg-type]  # it asks for named parameters only

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = loss_of()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def run(shape: str, batch: int, seq: int, steps: int, precision: str) -> dict[str, Any]:
    """Measure."""
    config = ModelConfig(**SHAPES[shape], max_position_embeddings=seq)
    ids = torch.randint(config.vocab_size, (batch, seq + 1), generator=torch.Generator().manual_seed(0))
    settings: dict[str, Step] = {}
    for compiled in (False, True):
        kind = "compiled" if compiled else "eager"
        settings[f"ours, {kind}"] = looped(config, ids, precision, compiled=compiled)
        settings[f"transformers, {kind}"] = llama(config, ids, precision, compiled=compiled)
    for step in settings.values():
        for _ in range(WARM_UP):
            step()
    seconds: dict[str, list[float]] = {name: [] for name in settings}
    for number in range(steps):
        for name in settings if number % 2 == 0 else reversed(settings):
            start = time.perf_counter()
            settings[name]()
            seconds[name].append(time.perf_counter() - start)
    return {
        "commit": commit(),
        "machine": hardware(),
        "shape": shape,
        "parameters": parameter_count(config),
        "batch_size": batch,
        "seq_len": seq,
        "steps": steps,
        "precision": precision,
        "settings": {
            name: {
                "ms": 1e3 * median(times),
                "tokens_per_second": batch * seq / median(times),
                "over_ours": median(
                    own / other for own, other in zip(times, seconds["ours" + name[name.index(",") :]], strict=True)
                ),
            }
            for name, times in seconds.items()
        },
    }


def report(result: dict[str, Any]) -> str:
    """A table for people."""
    machine = result["machine"]
    lines = [
        f"{machine['device']}, {machine['threads']} threads; commit {result['commit']}; {result['shape']}, "
        f"{result['precision']}, {result['batch_size']} x {result['seq_len']} tokens, {result['steps']} steps each",
        f"{'':26}{'ms/step':>9}{'tokens/s':>11}{'of ours':>10}",
    ]
    for name, row in result["settings"].items():
        lines.append(f"{name:26}{row['ms']:9.1f}{row['tokens_per_second']:11,.0f}{row['over_ours']:10.3f}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and keep the numbers if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="3M", help="sizes of the model")
    parser.add_argument("--batch", type=int, default=4, help="sequences per step")
    parser.add_argument("--seq", type=int, default=512, help="tokens per sequence")
    parser.add_argument("--steps", type=int, default=10, help="steps of each setting")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="bfloat16 is autocast")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    result = run(arguments.shape, arguments.batch, arguments.seq, arguments.steps, arguments.precision)
    print(report(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
