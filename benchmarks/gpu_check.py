"""Is the model right, and how fast does it decode, on this GPU? Needs torch, numpy and safetensors; under 4 minutes.

    python -m benchmarks.gpu_check [--device cuda|cpu] [--json PATH]

Parity: every golden checkpoint in training form, chunked prefill and token by token (a CUDA graph), float32 within 1e-4
absolute with TF32 off, bfloat16 within 6 % in Euclidean norm; FlexAttention's window against a dense mask, forward and
backward. Latency: about 1.2 billion parameters in bfloat16, plain, PLT R = 2 and 3, sequential loop R = 2, in turn.
`--device cpu` runs the golden part alone. Exit code 1 when a parity check fails; without a CUDA device nothing is
measured and the exit code is 0.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workers.decoding import Decoder
from workers.evaluation.decode_grid import DecodeGrid, measure_grid
from workers.evaluation.hardware import hardware
from workers.models import load_pretrained
from workers.models.window import attend_window_flex, attend_window_sdpa

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
FLOAT32_LIMIT = 1e-4
BFLOAT16_LIMIT = 6e-2
SIZES: dict[str, Any] = {
    "vocab_size": 32768,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
CONTEXT = 2048
STEPS = 100


def golden_errors(folder: Path, device: str, dtype: torch.dtype) -> dict[str, float]:
    """Error of the logits in every form: largest absolute in float32, relative in Euclidean norm in bfloat16."""
    model = load_pretrained(folder).to(device=device, dtype=dtype)
    with np.load(folder / "io.npz") as arrays:
        ids = torch.from_numpy(arrays["input_ids"]).to(device)
        expected = torch.from_numpy(arrays["logits"])
    decoder = Decoder(model, *ids.shape)
    forms = {"prefill": torch.cat([decoder.prefill(part) for part in torch.split(ids, [1, 7, 3, 13], 1)], 1)}
    decoder.reset()
    forms["steps"] = torch.stack([decoder.step(column) for column in ids.unbind(1)], 1)
    with torch.inference_mode():
        forms["training"] = model(ids).logits
    return {form: distance(logits, expected, dtype) for form, logits in forms.items()}


def distance(logits: Tensor, expected: Tensor, dtype: torch.dtype) -> float:
    """How far `logits` are from float64 ones, by the measure of their type."""
    difference = logits.double().cpu() - expected
    if dtype == torch.float32:
        return float(difference.abs().max())
    return float(difference.norm() / expected.norm())


def check_golden(device: str) -> tuple[dict[str, Any], bool]:
    """Errors of every golden folder, and whether all are within the limits."""
    errors: dict[str, Any] = {}
    passed = True
    for dtype, limit in ((torch.float32, FLOAT32_LIMIT), (torch.bfloat16, BFLOAT16_LIMIT)):
        for folder in sorted(path.parent for path in GOLDEN.glob("*/config.json")):
            measured = golden_errors(folder, device, dtype)
            good = all(error <= limit for error in measured.values())
            passed &= good
            label = str(dtype).removeprefix("torch.")
            errors[f"{folder.name} {label}"] = measured
            listed = "  ".join(f"{form} {error:.1e}" for form, error in measured.items())
            print(f"{'ok  ' if good else 'FAIL'} {folder.name:20} {label:9} {listed}")
    return errors, passed


def check_flex(device: str) -> bool:
    """FlexAttention's window equals the dense mask's, forward and backward, in float32."""
    generator = torch.Generator(device).manual_seed(0)
    worst = 0.0
    for window in (1, 64, 129):
        results = []
        parts = [torch.randn(2, heads, 500, 64, device=device, generator=generator) for heads in (8, 4, 4)]
        for attend in (attend_window_flex, attend_window_sdpa):
            query, key, value = (part.clone().requires_grad_() for part in parts)
            output = attend(query, key, value, window)
            torch.autograd.backward(output.square().sum())
            results.append((output.detach(), query.grad, key.grad, value.grad))
        worst = max(worst, *(float((a - b).abs().max()) for a, b in zip(*results, strict=True)))
    print(f"{'ok  ' if worst < 1e-3 else 'FAIL'} FlexAttention window, forward and backward: {worst:.1e}")
    return worst < 1e-3


def measure_latency() -> dict[str, Any]:
    """Plain, PLT and the sequential loop in turn."""
    measured = measure_grid(DecodeGrid(shape=SIZES, batch_sizes=(1,), contexts=(CONTEXT,), steps=STEPS))
    print(f"{'':16}{'ms p50':>9}{'ms p95':>9}{'of plain':>10}{'of floor':>10}")
    for point in measured.points:
        times = f"{point.ms_p50:9.3f}{point.ms_p95:9.3f}"
        print(f"{point.setting:16}{times}{point.over_plain:10.3f}{point.floor_fraction:10.2f}")
    return measured.to_plain()


def main() -> int:
    """Check, measure, print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device: not measured")
        return 0
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    result: dict[str, Any] = {"hardware": hardware()}
    print(", ".join(f"{name} {value}" for name, value in result["hardware"].items()))
    result["golden"], passed = check_golden(arguments.device)
    if arguments.device == "cuda":
        passed &= check_flex(arguments.device)
        result["latency"] = measure_latency()
    else:
        print("latency: not measured without a CUDA device")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
