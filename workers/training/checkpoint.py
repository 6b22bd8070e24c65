"""Everything a run needs to go on exactly where it was: tensors in safetensors, the rest in JSON, no pickle.

    <folder>/
      model/                  config.json, model.safetensors: also readable by `load_pretrained`
      optimizer.safetensors   AdamW's state, `<parameter>.<exp_avg | exp_avg_sq | step>`
      random.safetensors      states of torch's random number generators, `cpu` and `cuda`
      trainer.json            steps done, running loss, and what the run is

A folder is written aside and renamed, so it is whole or absent.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from workers.config import ModelConfig
from workers.models import CheckpointError, LoopedTransformer, load_pretrained, save_pretrained

FORMAT = "plt-trainer/1"


def save_checkpoint(
    folder: Path, model: LoopedTransformer, optimizer: torch.optim.Optimizer, progress: Mapping[str, Any]
) -> None:
    """Write a checkpoint, replacing one that is already there; `progress` is plain data."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        save_pretrained(model, aside / "model")
        save_file(_optimizer_tensors(model, optimizer), aside / "optimizer.safetensors")
        save_file(_random_states(), aside / "random.safetensors")
        text = json.dumps({"format": FORMAT, **progress}, indent=1, allow_nan=False)
        (aside / "trainer.json").write_text(text, encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def load_checkpoint(folder: Path, model: LoopedTransformer, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Put a checkpoint into `model`, `optimizer` and torch's generators; gives `progress` back.

    Raises a `CheckpointError` for a folder that is no checkpoint, or one of a model of another shape; nothing is changed then.
    """
    progress = _read_progress(folder / "trainer.json")
    saved = load_pretrained(folder / "model")
    _refuse_other_shape(folder, saved.config, model.config)
    model.load_state_dict(saved.state_dict())
    tensors = load_file(folder / "optimizer.safetensors")
    for name, parameter in model.named_parameters():
        state = {key: tensors.get(f"{name}.{key}") for key in ("exp_avg", "exp_avg_sq", "step")}
        optimizer.state[parameter] = {
            key: value.to(parameter.device) for key, value in state.items() if value is not None
        }
    _restore_random_states(load_file(folder / "random.safetensors"))
    return progress


def _read_progress(path: Path) -> dict[str, Any]:
    try:
        progress: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); choose a folder that a trainer saved") from error
    if progress.pop("format", None) != FORMAT:
        raise CheckpointError(f"{path} is not of format {FORMAT}; choose a folder that a trainer saved")
    return progress


def _refuse_other_shape(folder: Path, saved: ModelConfig, wanted: ModelConfig) -> None:
    there, here = saved.to_dict(), wanted.to_dict()
    differing = [f"{name} {there[name]!r} there, {here[name]!r} here" for name in here if there[name] != here[name]]
    if differing:
        raise CheckpointError(
            f"{folder} holds another model ({'; '.join(differing)}); choose its own checkpoint or start anew"
        )


def _optimizer_tensors(model: LoopedTransformer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def _random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _restore_random_states(states: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
