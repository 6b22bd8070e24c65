"""Checkpoint folders: `config.json` beside `model.safetensors`, tensors under Hugging Face Llama names.

`config.json` holds the sizes under Hugging Face's names and the loop knobs under ours, flat. A folder is written aside
and renamed, so a reader sees a whole checkpoint or none. Only safetensors are read: a pickle can run code when it is
opened.
"""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from workers.config.checkpoint_config import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    CheckpointError,
    describe_checkpoint,
    read_checkpoint_config,
)
from workers.models.looped_transformer import LoopedTransformer

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def save_pretrained(model: LoopedTransformer, folder: Path | str) -> None:
    """Write `model` to `folder`, replacing a checkpoint that is already there; parent folders are made."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        save_file(tensors, aside / WEIGHTS_FILE, metadata={"format": "pt"})
        (aside / CONFIG_FILE).write_text(_described(model), encoding="utf-8")
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
    config, dtype = read_checkpoint_config(folder)
    model = LoopedTransformer(config, device="meta", dtype=getattr(torch, dtype))
    tensors = _read_tensors(folder)
    _check_tensors(folder, model.state_dict(), tensors)
    model.load_state_dict(tensors, assign=True)
    return model


def _described(model: LoopedTransformer) -> str:
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    return json.dumps(describe_checkpoint(model.config, dtype), indent=2) + "\n"


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
