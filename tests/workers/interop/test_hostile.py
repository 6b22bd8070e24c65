"""Folders that are damaged or mean harm are refused in one line that names what, and leave nothing behind."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from workers.interop.errors import InteropError
from workers.interop.export import export_model
from workers.interop.reading import import_model

Make = Callable[..., Any]


@pytest.fixture
def whole(made: Make, tmp_path: Path) -> Path:
    """A looped folder in one file."""
    return Path(shutil.copytree(made("iquest-loop").folder, tmp_path / "whole"))


@pytest.fixture
def sharded(made: Make, tmp_path: Path) -> Path:
    """The same in shards."""
    return export_model(made("iquest-loop").checkpoint, tmp_path / "sharded", shard_bytes=30_000).folder


def refused(folder: Path) -> str:
    target = folder.parent / "target"
    with pytest.raises(InteropError) as caught:
        import_model(folder, target)
    message = str(caught.value)
    assert "\n" not in message
    assert not [path for path in folder.parent.iterdir() if "target" in path.name]
    return message


def edit(folder: Path, **settings: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def index(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "model.safetensors.index.json"
    content = json.loads(path.read_text())
    change(content["weight_map"])
    path.write_text(json.dumps(content))


def weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)


def test_a_link_out_of_the_folder_is_not_copied(whole: Path) -> None:
    secret = whole.parent / "secret.json"
    secret.write_text("{}")
    (whole / "tokenizer.json").symlink_to(secret)
    assert "tokenizer.json is a link out of the folder" in refused(whole)


class Burglar:
    """Unpickled, it leaves a trace."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("burgled").touch, ())


def test_a_pickle_is_not_opened(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    (whole / "pytorch_model.bin").write_bytes(pickle.dumps(Burglar()))
    (whole / "model.safetensors").rename(whole / "other.safetensors")
    assert "pytorch_model.bin and no model.safetensors: a pickle can run code" in refused(whole)
    (whole / "model.safetensors").write_bytes(pickle.dumps(Burglar()))
    assert "model.safetensors is damaged or not a safetensors file" in refused(whole)
    assert not (whole / "burgled").exists()


def test_foreign_code_is_not_run(whole: Path, tmp_path: Path) -> None:
    (whole / "modeling_iquestloopcoder.py").write_text(f"open({str(tmp_path / 'burgled')!r}, 'w')")
    (whole / "configuration_iquestloopcoder.py").write_text(f"open({str(tmp_path / 'burgled')!r}, 'w')")
    import_model(whole, tmp_path / "imported")
    assert not (tmp_path / "burgled").exists()
    assert not list((tmp_path / "imported").glob("*.py"))


@pytest.mark.parametrize("file", ["../whole/model.safetensors", "/etc/hostname", "a/b.safetensors", ".", 7, None])
def test_an_index_cannot_leave_its_folder(file: object, sharded: Path) -> None:
    index(sharded, lambda placed: placed.update({"model.norm.weight": file}))
    assert "it must be a .safetensors file beside the index" in refused(sharded)


def test_an_index_that_does_not_fit_its_files(sharded: Path) -> None:
    path = sharded / "model.safetensors.index.json"
    good = path.read_text()
    first = "model-00001-of-00010.safetensors"
    index(sharded, lambda placed: placed.update({"model.norm.weight": first}))
    assert "holds model.norm.weight, which model.safetensors.index.json places elsewhere or nowhere" in refused(sharded)
    path.write_text(good)
    index(sharded, lambda placed: placed.update({"extra": first}))
    assert f"{first} lacks extra, which model.safetensors.index.json places there" in refused(sharded)
    path.write_text(good)
    index(sharded, lambda placed: placed.update({"extra": "gone.safetensors"}))
    assert "gone.safetensors does not exist" in refused(sharded)
    path.write_text('{"weight_map": []}')
    assert "has no weight_map" in refused(sharded)
    path.write_text(good[:-20])
    assert "is not JSON" in refused(sharded)
    path.unlink()
    assert "model.safetensors does not exist" in refused(sharded)


def test_a_truncated_or_damaged_file(whole: Path, sharded: Path) -> None:
    for path in (whole / "model.safetensors", sharded / "model-00003-of-00010.safetensors"):
        content = path.read_bytes()
        for damaged in (content[:-1], content[:100], b"", content[:8], b"\xff" * 100):
            path.write_bytes(damaged)
            assert f"{path.name} is damaged or not a safetensors file" in refused(path.parent)


def test_tensors_that_do_not_fit(whole: Path) -> None:
    name, content = "model.gate_projections.1.bias", (whole / "model.safetensors").read_bytes()
    cases: list[tuple[Callable[[dict[str, torch.Tensor]], object], str]] = [
        (lambda tensors: tensors.pop(name), f"lacks {name}, shape (2,)"),
        (lambda tensors: tensors.update({name: torch.zeros(3)}), f"{name} has shape (3,); config.json asks for (2,)"),
        (lambda tensors: tensors.update({name: torch.zeros(2, 1)}), f"{name} has shape (2, 1)"),
        (lambda tensors: tensors.update({name: torch.tensor([1, 2])}), f"{name} is I64; weights must be float32"),
        (lambda tensors: tensors.update({name: torch.tensor([1.0, float("nan")])}), f"{name} holds NaN or infinite"),
        (lambda tensors: tensors.update({name: torch.tensor([1.0, float("inf")])}), f"{name} holds NaN or infinite"),
        (lambda tensors: tensors.update({"model.layers.9.extra": torch.zeros(1)}), "holds model.layers.9.extra"),
        (
            lambda tensors: tensors.update({"model.layers.1.self_attn.plt_gate.bias": torch.zeros(2)}),
            "holds model.layers.1.self_attn.plt_gate.bias, shape (2,), for which config.json has no place",
        ),
    ]
    for change, message in cases:
        weights(whole, change)
        assert message in refused(whole)
        (whole / "model.safetensors").write_bytes(content)


def test_two_names_of_one_tensor(made: Make, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made("plt").folder, tmp_path / "twice"))
    gate = "model.layers.0.self_attn."
    weights(folder, lambda tensors: tensors.update({f"{gate}loop_gate_proj.bias": torch.zeros(2)}))
    assert "which are one tensor" in refused(folder)


def test_a_config_that_claims_another_loop_count(whole: Path, made: Make, tmp_path: Path) -> None:
    edit(whole, loop_num=3)
    assert "says 3 loops and the weights were written for 2" in refused(whole)
    edit(whole, loop_num=1)
    assert "loop_num is 1; a looped layout has from 2 to 64 loops" in refused(whole)
    folder = Path(shutil.copytree(made("plt").folder, tmp_path / "plt"))
    edit(folder, plt_num_loops=4)
    assert "says 4 loops and the weights were written for 2" in refused(folder)
    plain = Path(shutil.copytree(made("vanilla").folder, tmp_path / "plain"))
    settings = {"model_type": "iquestloopcoder", "architectures": ["IQuestLoopCoderForCausalLM"], "loop_num": 2}
    edit(plain, **settings)
    assert "lacks model.gate_projections.0.weight" in refused(plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_hidden_layers": 10**9}, "says 1,000,000,000 layers; the weights are 25 tensors"),
        ({"num_hidden_layers": 3}, "lacks model.layers.2.input_layernorm.weight"),
        ({"vocab_size": 10**15}, "model.embed_tokens.weight has shape (61, 64); config.json asks for (1000000"),
        ({"hidden_size": 128}, "head_dim is 32; it must be hidden_size / num_attention_heads (64)"),
        ({"num_key_value_heads": 2}, "k_proj.weight has shape (32, 64); config.json asks for (64, 64)"),
        ({"tie_word_embeddings": True}, "holds lm_head.weight"),
        ({"quantization_config": {"bits": 4}}, "unknown settings quantization_config"),
    ],
)
def test_a_config_that_does_not_fit_the_weights(settings: dict, message: str, whole: Path) -> None:
    edit(whole, **settings)
    assert message in refused(whole)


def test_files_that_are_no_config(whole: Path) -> None:
    path = whole / "config.json"
    for content, message in (("[]", "holds a list"), ("{", "is not JSON"), ("[" * 100_000, "is not JSON")):
        path.write_text(content)
        assert message in refused(whole)
    with path.open("wb") as file:
        file.truncate(1 << 30)
    assert "has more than 67,108,864 bytes" in refused(whole)
    path.unlink()
    assert "config.json does not exist" in refused(whole)
    assert "config.json does not exist" in refused(whole.parent / "nowhere")


def test_shards_of_two_checkpoints(sharded: Path, made: Make, tmp_path: Path) -> None:
    other = export_model(made("iquest-loop", num_loops=3).checkpoint, tmp_path / "other", shard_bytes=30_000).folder
    shutil.copyfile(other / "model-00002-of-00010.safetensors", sharded / "model-00002-of-00010.safetensors")
    assert "the shards disagree about num_loops" in refused(sharded)
