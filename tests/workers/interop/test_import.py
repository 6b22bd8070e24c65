"""Checkpoints that others wrote, and round trips: every layout, sharded or not, in every type, held once."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from mlx_lm.models.iquestloopcoder import Model as MlxModel
from mlx_lm.models.iquestloopcoder import ModelArgs
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from workers.interop.errors import InteropError
from workers.interop.export import export_model
from workers.interop.reading import import_model, load_model
from workers.models import load_pretrained

Make = Callable[..., Any]
Ids = Callable[..., Tensor]
CLOSE = {"atol": 1e-4, "rtol": 0, "check_dtype": False}


@pytest.mark.parametrize("tied", [False, True])
def test_a_llama_that_transformers_wrote(tied: bool, tmp_path: Path, random_ids: Ids) -> None:
    """Sharded, with grouped keys, as `save_pretrained` writes it."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=61, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tied, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
    )  # fmt: skip
    theirs = LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="100KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    imported = import_model(tmp_path / "theirs", tmp_path / "ours")
    ids = random_ids(2, 30)
    with torch.inference_mode():
        torch.testing.assert_close(load_pretrained(imported.folder)(ids).logits, theirs(ids).logits, **CLOSE)
    assert imported.parameters == sum(parameter.numel() for parameter in theirs.parameters())


@pytest.mark.parametrize("tied", [False, True])
def test_a_loop_model_that_we_did_not_write(tied: bool, tmp_path: Path, random_ids: Ids) -> None:
    """Made by the published names, filled at random, run by mlx-lm: the import gives its logits."""
    shapes = {"model.embed_tokens.weight": (61, 64), "model.norm.weight": (64,)}
    if not tied:
        shapes["lm_head.weight"] = (61, 64)
    for index in range(3):
        layer = f"model.layers.{index}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (64,),
            f"{layer}.post_attention_layernorm.weight": (64,),
            f"{layer}.self_attn.q_proj.weight": (64, 64),
            f"{layer}.self_attn.k_proj.weight": (32, 64),
            f"{layer}.self_attn.v_proj.weight": (32, 64),
            f"{layer}.self_attn.o_proj.weight": (64, 64),
            f"{layer}.mlp.gate_proj.weight": (96, 64),
            f"{layer}.mlp.up_proj.weight": (96, 64),
            f"{layer}.mlp.down_proj.weight": (64, 96),
            f"model.gate_projections.{index}.weight": (4, 16),
            f"model.gate_projections.{index}.bias": (4,),
        }
    generator = torch.Generator().manual_seed(11)
    tensors = {
        name: torch.empty(shape).normal_(1 if "norm" in name else 0, 1.5 / shape[-1] ** 0.5, generator=generator)
        for name, shape in shapes.items()
    }
    settings = {
        "architectures": ["IQuestLoopCoderForCausalLM"], "model_type": "iquestloopcoder", "vocab_size": 61,
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 500000, "loop_num": 2,
        "loop_window_size": 7, "max_position_embeddings": 512, "tie_word_embeddings": tied, "attention_bias": False,
    }  # fmt: skip
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**settings, "torch_dtype": "float32"}))
    save_file(tensors, folder / "model.safetensors")
    mx.set_default_device(mx.cpu)
    engine = MlxModel(ModelArgs.from_dict(settings))
    engine.load_weights([(name, mx.array(tensor.numpy())) for name, tensor in tensors.items()])
    ids = random_ids(2, 40)
    theirs = torch.from_numpy(np.array(engine(mx.array(ids.numpy()))))
    with torch.inference_mode():
        torch.testing.assert_close(load_model(folder)(ids).logits, theirs, atol=2e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("variant", "knobs"),
    [
        ("vanilla", {"tie_word_embeddings": True}),
        ("iquest-loop", {"num_loops": 3, "gate_polarity": "local"}),
        ("plt", {}),
        ("loopcoder-v2", {}),
        ("plt", {"gate_mode": 0.25}),
    ],
)
def test_there_and_back_gives_the_same_bytes(
    variant: str, knobs: dict, dtype: torch.dtype, made: Make, tmp_path: Path, random_ids: Ids
) -> None:
    ours = made(variant, dtype=dtype, **knobs)
    sharded = export_model(ours.checkpoint, tmp_path / "sharded", shard_bytes=30_000)
    assert sum(file.endswith(".safetensors") for file in sharded.files) >= 3
    for number, folder in enumerate((ours.folder, sharded.folder)):
        back = import_model(folder, tmp_path / f"back-{number}")
        ids = random_ids(1, 20)
        with torch.inference_mode():
            same = load_pretrained(back.folder).double()(ids).logits
        torch.testing.assert_close(same, ours.logits(ids), atol=1e-9, rtol=0)
        again = export_model(back.folder, tmp_path / f"again-{number}", shard_bytes=30_000)
        assert again.files == sharded.files
        for file in again.files:
            if not file.endswith(".md"):
                assert (again.folder / file).read_bytes() == (sharded.folder / file).read_bytes(), file


def test_weights_are_converted_only_when_asked(made: Make, tmp_path: Path) -> None:
    ours = made("vanilla")
    theirs = tmp_path / "half"
    shutil.copytree(ours.folder, theirs)
    tensors = load_file(theirs / "model.safetensors")
    save_file({name: tensor.half() for name, tensor in tensors.items()}, theirs / "model.safetensors")
    settings = json.loads((theirs / "config.json").read_text()) | {"torch_dtype": "float16"}
    (theirs / "config.json").write_text(json.dumps(settings))
    with pytest.raises(InteropError, match="holds float16 weights; convert them with --dtype float32 or bfloat16"):
        import_model(theirs, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    imported = import_model(theirs, tmp_path / "converted", dtype="float32")
    for name, tensor in load_file(imported.folder / "model.safetensors").items():
        assert torch.equal(tensor, tensors[name].half().float())


def test_the_vendors_other_name_of_a_gate(made: Make, tmp_path: Path, random_ids: Ids) -> None:
    ours = made("loopcoder-v2")
    shutil.copytree(ours.folder, tmp_path / "alias")
    tensors = load_file(ours.folder / "model.safetensors")
    renamed = {name.replace("plt_gate", "loop_gate_proj"): tensor for name, tensor in tensors.items()}
    save_file(renamed, tmp_path / "alias" / "model.safetensors")
    ids = random_ids(1, 20)
    with torch.inference_mode():
        torch.testing.assert_close(load_model(tmp_path / "alias").double()(ids).logits, ours.logits(ids))


MEMORY = """
import sys
from pathlib import Path
from workers.interop.reading import import_model

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

before = resident("VmRSS")
import_model(Path(sys.argv[1]), Path(sys.argv[2]))
print(resident("VmHWM") - before)
"""


def test_the_weights_are_never_held_twice(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=32000, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "theirs", max_shard_size="40MB")
    size = sum(path.stat().st_size for path in (tmp_path / "theirs").glob("*.safetensors"))
    arguments = [sys.executable, "-c", MEMORY, str(tmp_path / "theirs"), str(tmp_path / "ours")]
    grown = int(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    assert size > 150_000_000
    assert grown < 1.3 * size
