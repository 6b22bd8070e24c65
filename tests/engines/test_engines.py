"""Exported folders in released engines, prefill and decoding past the window, against our own training form.

Here the engines of this environment run two models. `make interop` builds environments for the oldest transformers,
llama.cpp and vLLM, names their Pythons in `PLT_ENGINE_PYTHONS` (separated by colons), and runs every model in each.
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from workers.config import ModelConfig, variant_knobs
from workers.interop.export import export_model
from workers.interop.verify import verify
from workers.models import LoopedTransformer, save_pretrained

PYTHONS = tuple(filter(None, os.environ.get("PLT_ENGINE_PYTHONS", "").split(":")))
SIZES = {
    "vocab_size": 97,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "rope_theta": 5e5,
}
"""Heads are 32 wide, the narrowest that vLLM takes on a CPU; two share a key."""


@dataclass(frozen=True)
class Case:
    """One model, and the engines that must be able to run it."""

    variant: str
    engines: frozenset[str]
    knobs: dict[str, Any] = field(default_factory=dict)


EVERY = frozenset({"transformers", "mlx-lm", "vLLM", "llama.cpp"})
CASES = {
    "loop R=2": Case("iquest-loop", EVERY - {"llama.cpp"}, {"window": 7}),
    "CLP R=2, hidden gate": Case("loopcoder-v2", frozenset({"transformers"}), {"window": 9}),
    "plain": Case("vanilla", EVERY),
    "plain, tied head": Case("vanilla", EVERY, {"tie_word_embeddings": True}),
    "loop R=2, window 1, tied head": Case(
        "iquest-loop", EVERY - {"llama.cpp"}, {"window": 1, "tie_word_embeddings": True}
    ),
    "loop R=2, gate on the window": Case(
        "iquest-loop", EVERY - {"llama.cpp"}, {"window": 40, "gate_polarity": "local"}
    ),
    "loop R=3": Case("iquest-loop", frozenset({"transformers", "vLLM"}), {"num_loops": 3, "window": 16}),
    "loop R=4": Case("iquest-loop", frozenset({"transformers", "vLLM"}), {"num_loops": 4, "window": 5}),
    "CLP R=3, query gate": Case("plt", frozenset({"transformers"}), {"num_loops": 3, "window": 9}),
    "own keys in every loop": Case("loop", frozenset({"transformers"})),
}
HERE = dict(list(CASES.items())[:2])


def random_model(config: ModelConfig) -> LoopedTransformer:
    """Norms, gates and residual outputs far from their initial values; logits of ordinary size."""
    model = LoopedTransformer(config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.empty(parameter.shape).normal_(generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif "embed" not in name:
                parameter.copy_(noise * 1.5 / parameter.shape[-1] ** 0.5)
            elif config.tie_word_embeddings:
                parameter.mul_(0.1)
    return model


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES if PYTHONS else HERE)
def test_engines_compute_what_we_do(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    config = ModelConfig(**{**SIZES, **variant_knobs(case.variant), **case.knobs})
    save_pretrained(random_model(config), tmp_path / "checkpoint")
    exported = export_model(tmp_path / "checkpoint", tmp_path / "exported")
    agreements = verify(exported.folder, (sys.executable, *PYTHONS))
    for each in agreements:
        said = each.note if each.difference is None else f"{each.difference:.1e} (limit {each.limit:.0e})"
        print(f"{name:32} {each.engine:14} {each.version:10} {said}")
    assert all(each.agrees for each in agreements), agreements
    ran = {each.engine for each in agreements if each.difference is not None}
    installed = {each.engine for each in agreements}
    assert ran == case.engines & installed
    assert ran >= case.engines & {"transformers", "mlx-lm"}
    assert all(each.same_choice == 1.0 for each in agreements if each.difference is not None)
