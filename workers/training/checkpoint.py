"""Everything a run needs to go on exactly where it was: tensors in safetensors, the rest in JSON, no pickle.

    <folder>/
      model/                  config.json, model.safetensors: also readable by `load_pretrained`
      optimizer.safetensors   AdamW's state, `<parameter>.<exp_avg | exp_avg_sq | step>`
      random.safetensors      states of torch's random number generators, `cpu` and `cuda`
      trainer.json            what the run is, how far it came, and how it computes

A folder is written aside, flushed to the disk and renamed, so it is whole or absent, even after a power cut.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from workers.models import CheckpointError, LoopedTransformer, load_pretrained, save_pretrained
from workers.parallel.spread import Spread

FORMAT = "plt-trainer/2"
_ADAMW_STATE = {"exp_avg", "exp_avg_sq", "step"}


def save_checkpoint(folder: Path, spread: Spread, optimizer: torch.optim.Optimizer, facts: Mapping[str, Any]) -> None:
    """Write a checkpoint, replacing one that is already there; `facts` is plain data.

    Of several workers rank 0 gathers the whole and writes it, as one worker would have; the others only give.
    """
    model, tensors = spread.whole_model(), _optimizer_tensors(spread, optimizer)
    if model is not None:
        _write(folder, model, tensors, facts)


def _write(folder: Path, model: LoopedTransformer, tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        save_pretrained(model, aside / "model")
        save_file(tensors, aside / "optimizer.safetensors")
        save_file(_random_states(), aside / "random.safetensors")
        text = json.dumps({"format": FORMAT, **facts}, indent=1, allow_nan=False)
        (aside / "trainer.json").write_text(text, encoding="utf-8")
        _flush(aside)
        if folder.exists():
            shutil.rmtree(folder)
        aside.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """The facts of a checkpoint; a `CheckpointError` says why the folder is none."""
    path = folder / "trainer.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); choose a folder that a trainer saved") from error
    if facts.pop("format", None) != FORMAT:
        raise CheckpointError(f"{path} is not of format {FORMAT}; choose a folder that a trainer saved")
    return facts


def refuse_difference(folder: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise a `CheckpointError` that names every fact, nested or not, in which two runs differ."""
    there, here = _flat(saved), _flat(wanted)
    differing = [
        f"{name} is {there.get(name)!r} there and {here.get(name)!r} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    if differing:
        raise CheckpointError(
            f"{folder} belongs to another run: {'; '.join(differing)}; start anew, or resume that run"
        )


def load_checkpoint(folder: Path, spread: Spread, optimizer: torch.optim.Optimizer) -> None:
    """Put a checkpoint of this very model into it, `optimizer` and torch's random number generators.

    Everything is read and checked before the model and the optimizer are touched.
    """
    saved, tensors = load_pretrained(folder / "model"), load_file(folder / "optimizer.safetensors")
    states, random = _optimizer_states(spread, tensors), load_file(folder / "random.safetensors")
    _restore_random_states(random)
    spread.take(saved.state_dict())
    optimizer.state.update(states)


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _optimizer_states(spread: Spread, tensors: Mapping[str, Tensor]) -> dict[Tensor, dict[str, Tensor]]:
    """AdamW's state of each parameter, or of this worker's part of it, on its device."""
    parameters = dict(spread.model.named_parameters())
    states: dict[Tensor, dict[str, Tensor]] = {parameter: {} for parameter in parameters.values()}
    for name, tensor in tensors.items():
        parameter, _, key = name.rpartition(".")
        states[parameters[parameter]][key] = spread.own(parameters[parameter], tensor)
    for name, state in zip(parameters, states.values(), strict=True):
        if tensors and state.keys() != _ADAMW_STATE:
            raise CheckpointError(
                f"the optimizer's state of {name} is {sorted(state)}; it must be {sorted(_ADAMW_STATE)}"
            )
    return states


def _optimizer_tensors(spread: Spread, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Whole tensors on rank 0, nothing on the others."""
    gathered = {
        f"{name}.{key}": spread.whole(value)
        for name, parameter in spread.model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
    return {name: tensor for name, tensor in gathered.items() if tensor is not None}


def _flush(folder: Path) -> None:
    """Have the disk hold every file below a folder."""
    for path in folder.rglob("*"):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _restore_random_states(states: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
