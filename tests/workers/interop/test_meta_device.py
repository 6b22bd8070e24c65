"""The code in exported folders, at the published sizes on the meta device: every name and shape, no number."""

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from workers.interop.export import REMOTE_CODE
from workers.interop.layout import Layout
from workers.interop.names import layout_names
from workers.interop.settings import read_settings
from workers.models import LoopedTransformer

SIZES = {
    "vocab_size": 76800,
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}


@pytest.fixture
def remote() -> Iterator[Any]:
    """Imports a file of the remote code as transformers would, in a package of its own."""
    package = ModuleType("remote")
    package.__path__ = [str(REMOTE_CODE)]
    sys.modules["remote"] = package
    yield lambda name: importlib.import_module(f"remote.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] == "remote"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("layout", "own", "count", "parameters"),
    [
        (Layout.LOOP, {"num_hidden_layers": 80, "loop_num": 2, "loop_window_size": 64}, 883, 39_794_696_320),
        (
            Layout.PLT,
            {
                "num_hidden_layers": 14,
                "plt_num_loops": 2,
                "plt_emb_scale": 0.707,
                "plt_hidden_scale": 0.053,
                "plt_gate_use_hidden_states": True,
            },
            171,
            7_615_749_680,
        ),
    ],
)
def test_published_sizes(layout: Layout, own: dict, count: int, parameters: int, remote: Any) -> None:
    name = {Layout.LOOP: "IQuestLoopCoder", Layout.PLT: "IQuestPLTCoder"}[layout]
    config = getattr(remote(f"configuration_{layout}"), f"{name}Config")(**SIZES, **own)
    with torch.device("meta"):
        theirs = getattr(remote(f"modeling_{layout}"), f"{name}ForCausalLM")(config).state_dict()
    assert len(theirs) == count
    assert sum(tensor.numel() for tensor in theirs.values()) == parameters
    ours, _, _ = read_settings({**SIZES, **own, "model_type": str(layout)})
    state = LoopedTransformer(ours, device="meta").state_dict()
    shapes = {theirs: tuple(state[name].shape) for theirs, name in layout_names(ours, layout).items()}
    assert {name: tuple(tensor.shape) for name, tensor in theirs.items()} == shapes
