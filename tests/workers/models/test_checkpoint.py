"""Checkpoint folders: what is written comes back, and whatever does not fit is named."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from workers.config import ModelConfig
from workers.models import CheckpointError, LoopedTransformer, load_pretrained, save_pretrained

Configure = Callable[..., ModelConfig]


@pytest.fixture
def folder(tmp_path: Path, config_of: Configure) -> Path:
    save_pretrained(LoopedTransformer(config_of("loopcoder-v2", window=5), seed=3), tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def edit(folder: Path, **settings: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("knobs", [{}, {"tie_word_embeddings": True}, {"gate_mode": 0.25}])
def test_a_saved_model_comes_back(tmp_path: Path, config_of: Configure, knobs: dict, dtype: torch.dtype) -> None:
    model = LoopedTransformer(config_of("plt", window=4, embedding_init_std=0.5, **knobs), seed=1, dtype=dtype)
    for _ in range(2):  # the second time replaces
        save_pretrained(model, tmp_path / "deep" / "checkpoint")
    loaded = load_pretrained(tmp_path / "deep" / "checkpoint")
    assert loaded.config == model.config
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, parameter in loaded.named_parameters():
        assert parameter.dtype == dtype
        assert parameter.requires_grad
        assert torch.equal(parameter, model.state_dict()[name])
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["checkpoint"]


def test_tensors_bear_hugging_face_names(folder: Path) -> None:
    names = load_file(folder / "model.safetensors").keys()
    layer = "model.layers.1."
    assert {name for name in names if name.startswith(layer)} == {
        layer + name
        for name in (
            "input_layernorm.weight",
            "post_attention_layernorm.weight",
            *(f"self_attn.{letter}_proj.weight" for letter in "qkvo"),
            *(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
            "self_attn.plt_gate.weight",
            "self_attn.plt_gate.bias",
            "self_attn.plt_gate.gate_norm.weight",
        )
    }
    assert {name for name in names if ".layers." not in name} == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    }


def test_a_tensor_that_does_not_fit_is_named_with_both_shapes(folder: Path) -> None:
    whole, path = load_file(folder / "model.safetensors"), folder / "model.safetensors"
    name = "model.layers.0.self_attn.k_proj.weight"
    save_file(whole | {name: torch.zeros(8, 32)}, path)
    with pytest.raises(CheckpointError, match=r"k_proj.weight has shape \(8, 32\).*asks for \(16, 32\)"):
        load_pretrained(folder)
    save_file({key: tensor for key, tensor in whole.items() if key != name}, path)
    with pytest.raises(CheckpointError, match=r"lacks model.layers.0.self_attn.k_proj.weight, shape \(16, 32\)"):
        load_pretrained(folder)
    save_file(whole | {"model.layers.0.self_attn.k_proj.bias": torch.zeros(16)}, path)
    with pytest.raises(CheckpointError, match=r"holds model.layers.0.self_attn.k_proj.bias, shape \(16,\)"):
        load_pretrained(folder)
    save_file(whole | {name: whole[name].bfloat16()}, path)
    with pytest.raises(CheckpointError, match=r"k_proj.weight is torch.bfloat16; torch_dtype .* torch.float32"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; this model needs 'silu'"),
        ({"head_dim": 16}, "head_dim is 16; this model needs 8"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"torch_dtype": "int8"}, "torch_dtype is 'int8'; it must be one of float32, bfloat16, float64"),
        ({"rope_scaling": {"type": "yarn"}}, "unknown settings rope_scaling"),
        ({"num_loops": 0}, "num_loops is 0"),
    ],
)
def test_settings_that_another_model_would_need_are_refused(folder: Path, settings: dict, message: str) -> None:
    edit(folder, **settings)
    with pytest.raises(CheckpointError, match=message):
        load_pretrained(folder)


def test_files_that_are_not_a_checkpoint_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere/config.json does not exist"):
        load_pretrained(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"config.json does not exist"):
        load_pretrained(folder / "model.safetensors")
    weights = folder / "model.safetensors"
    weights.write_bytes(pickle.dumps({"model.norm.weight": [1.0]}))
    with pytest.raises(CheckpointError, match="is not a safetensors file"):
        load_pretrained(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"model.safetensors does not exist"):
        load_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin: a pickle can run code"):
        load_pretrained(folder)
    for text, message in (("{", "is not JSON"), ("[]", "holds a list")):
        (folder / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match=message):
            load_pretrained(folder)


def test_an_interrupted_save_leaves_the_old_checkpoint(folder: Path, config_of: Configure) -> None:
    """A model whose weights cannot be written fails before the folder is touched, and leaves nothing aside."""
    unwritable = LoopedTransformer(config_of("vanilla"), device="meta")
    with pytest.raises((NotImplementedError, RuntimeError)):
        save_pretrained(unwritable, folder)
    assert load_pretrained(folder).config.num_loops == 2
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]
