"""Checkpoint folders: `config.json` beside `model.safetensors`, tensors under Hugging Face Llama names.

`config.json` holds the sizes under Hugging Face's names and the loop knobs under ours, flat. A folder is written aside
and renamed, so a reader sees a whole checkpoint or none. Only safetensors are read: a pickle can run code when it is
opened.
"""

import json
import shutil
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from workers.config import ModelConfig
from workers.models.looped_transformer import LoopedTransformer

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
FORMAT = "plt/1"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.bfloat16, torch.float64)}
_LABELS = ("format", "name")


class CheckpointError(ValueError):
    """A checkpoint folder that cannot be read as a looped transformer; the message names the file or tensor."""


def save_pretrained(model: LoopedTransformer, folder: Path | str) -> None:
    """Write `model` to `folder`, replacing a checkpoint that is already there; parent folders are made."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        save_file(tensors, aside / WEIGHTS_FILE, metadata={"format": "pt"})
        (aside / CONFIG_FILE).write_text(json.dumps(_describe(model), indent=2) + "\n", encoding="utf-8")
        aside.chmod(0o755)  # mkdtemp's own folders are private
        if folder.exists():
            shutil.rmtree(folder)
        aside.replace(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def load_pretrained(folder: Path | str) -> LoopedTransformer:
    """Read a checkpoint folder, on the CPU, in the type that its `torch_dtype` names.

    A `CheckpointError` says which file, setting or tensor does not fit and how.
    """
    folder = Path(folder)
    config, dtype = _read_config(folder)
    model = LoopedTransformer(config, device="meta", dtype=dtype)
    tensors = _read_tensors(folder)
    _check_tensors(folder, model.state_dict(), tensors)
    model.load_state_dict(tensors, assign=True)
    return model


def _describe(model: LoopedTransformer) -> dict[str, Any]:
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    return {"format": FORMAT, **model.config.to_dict(), **_fixed_settings(model.config), "torch_dtype": dtype}


def _fixed_settings(config: ModelConfig) -> dict[str, Any]:
    """Settings that other software writes out and that have only one value here."""
    return {"head_dim": config.head_dim, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


def _read_config(folder: Path) -> tuple[ModelConfig, torch.dtype]:
    path = folder / CONFIG_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"{path} does not exist; a checkpoint folder holds {CONFIG_FILE} and {WEIGHTS_FILE}"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a {type(data).__name__}; it must hold an object of settings")
    known = {field.name for field in fields(ModelConfig)}
    try:
        config = ModelConfig.from_dict({key: value for key, value in data.items() if key in known})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    fixed = _fixed_settings(config)
    unknown = sorted(set(data) - known - set(fixed) - {*_LABELS, "torch_dtype"})
    if unknown:
        raise CheckpointError(f"{path}: unknown settings {', '.join(unknown)}; remove them if they change nothing")
    for key, value in fixed.items():
        if data.get(key, value) != value:
            raise CheckpointError(f"{path}: {key} is {data[key]!r}; this model needs {value!r}")
    dtype = data.get("torch_dtype", "float32")
    if dtype not in _DTYPES:
        raise CheckpointError(f"{path}: torch_dtype is {dtype!r}; it must be one of {', '.join(_DTYPES)}")
    return config, _DTYPES[dtype]


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLE_SUFFIXES)
        if pickles:
            raise CheckpointError(
                f"{folder} holds {', '.join(pickles)}: a pickle can run code when it is opened, so it is not read; "
                f"convert it to {WEIGHTS_FILE}"
            )
        raise CheckpointError(f"{path} does not exist; a checkpoint folder holds {CONFIG_FILE} and {WEIGHTS_FILE}")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file ({error}); no other format is read") from None


def _check_tensors(folder: Path, needed: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Refuse the first tensor, by name, that is missing, unexpected, or of another shape or type."""
    path = folder / WEIGHTS_FILE
    for name in sorted(needed.keys() | found.keys()):
        if name not in found:
            raise CheckpointError(
                f"{path} lacks {name}, shape {tuple(needed[name].shape)}, that {CONFIG_FILE} asks for"
            )
        if name not in needed:
            raise CheckpointError(
                f"{path} holds {name}, shape {tuple(found[name].shape)}, for which {CONFIG_FILE} has no place"
            )
        if needed[name].shape != found[name].shape:
            shapes = f"has shape {tuple(found[name].shape)}; {CONFIG_FILE} asks for {tuple(needed[name].shape)}"
            raise CheckpointError(f"{path}: {name} {shapes}")
        if needed[name].dtype != found[name].dtype:
            raise CheckpointError(
                f"{path}: {name} is {found[name].dtype}; torch_dtype in {CONFIG_FILE} says {needed[name].dtype}"
            )
