"""Checkpoints of any layout as models of ours, and as checkpoint folders of ours.

    model = load_model(folder)               ours, Llama, iquestloopcoder, iquestpltcoder; sharded or not
    import_model(folder, target)             the same weights as a checkpoint folder of ours

Tensors are mapped from their files and handed on one by one: a model is never held twice. Each one's name, shape, type
and finiteness is checked, and the first that does not fit is named.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from workers.config import ModelConfig
from workers.config.checkpoint_config import CONFIG_FILE, DTYPES, describe_checkpoint
from workers.config.counts import parameter_count
from workers.interop.description import Description, describe
from workers.interop.errors import InteropError
from workers.interop.layout import Layout
from workers.interop.names import layout_names, published_name, tensor_shapes
from workers.interop.new_folder import new_folder
from workers.interop.tokenizer_files import copy_tokenizer
from workers.interop.weight_files import WEIGHTS_FILE, Weights, finite, open_weights
from workers.models import LoopedTransformer

_TYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import made."""

    folder: Path
    config: ModelConfig
    layout: Layout | None
    """Of the source; None when it was this project's own."""
    dtype: str
    parameters: int


def load_model(folder: Path, dtype: str | None = None) -> LoopedTransformer:
    """The model in a checkpoint folder of any layout, on the CPU; weights are converted when `dtype` is given.

    An `InteropError` says in one line which file, setting or tensor does not fit.
    """
    description = describe(folder)
    with _open_checked(folder, description) as (weights, theirs):
        wanted = getattr(torch, _target_type(folder, description, dtype))
        state = {ours: _read(folder, weights, name, wanted) for ours, name in theirs.items()}
    model = LoopedTransformer(description.config, device="meta", dtype=wanted)
    model.load_state_dict(state, assign=True)
    return model


def import_model(source: Path, target: Path, dtype: str | None = None) -> Imported:
    """Write the model in `source` to the new folder `target` in this project's layout, tokenizer files beside it.

    An `InteropError` says what does not fit, and nothing is left behind.
    """
    description = describe(source)
    kept = _target_type(source, description, dtype)
    with _open_checked(source, description) as (weights, theirs), new_folder(target) as folder:
        wanted = getattr(torch, kept)
        save_file(
            {ours: _read(source, weights, name, wanted) for ours, name in theirs.items()},
            folder / WEIGHTS_FILE,
            metadata={"format": "pt"},
        )
        (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors' own files are private
        settings = describe_checkpoint(description.config, kept)
        (folder / CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        copy_tokenizer(source, folder)
    return Imported(
        folder=target,
        config=description.config,
        layout=description.layout,
        dtype=kept,
        parameters=parameter_count(description.config),
    )


@contextmanager
def _open_checked(folder: Path, description: Description) -> Iterator[tuple[Weights, dict[str, str]]]:
    """The weights, and their name of every tensor by ours, once everything but the numbers is known to fit."""
    with open_weights(folder) as weights:
        theirs = _match(folder, description, weights)
        claimed = weights.metadata.get("num_loops", str(description.config.num_loops))
        if claimed != str(description.config.num_loops):
            raise InteropError(
                f"{folder / CONFIG_FILE} says {description.config.num_loops} loops and the weights were written for "
                f"{claimed}; restore the file, or change the loops in a study: model: {{from: FOLDER, num_loops: N}}"
            )
        yield weights, theirs


def _match(folder: Path, description: Description, weights: Weights) -> dict[str, str]:
    """Their name of every tensor by ours; a tensor that is missing, unexpected or of another shape is refused."""
    config = description.config
    layers, tensors = config.num_hidden_layers, len(weights.shapes)
    if layers > tensors:  # before a list of that many layers is made
        raise InteropError(f"{folder / CONFIG_FILE} says {layers:,} layers; the weights are {tensors} tensors")
    layout = description.layout
    shapes = tensor_shapes(config)
    places = layout_names(config, layout) if layout is not None else {name: name for name in shapes}
    found = _found(folder, layout, weights)
    for place, ours in places.items():
        if place not in found:
            raise InteropError(f"{folder} lacks {place}, shape {shapes[ours]}, that {CONFIG_FILE} asks for")
        if weights.shapes[found[place]] != shapes[ours]:
            has = weights.shapes[found[place]]
            raise InteropError(f"{folder}: {place} has shape {has}; {CONFIG_FILE} asks for {shapes[ours]}")
    unexpected = sorted(found.keys() - places.keys())
    if unexpected:
        shape = weights.shapes[found[unexpected[0]]]
        raise InteropError(f"{folder} holds {unexpected[0]}, shape {shape}, for which {CONFIG_FILE} has no place")
    return {ours: found[place] for place, ours in places.items()}


def _found(folder: Path, layout: Layout | None, weights: Weights) -> dict[str, str]:
    """The tensors that are there, by the name that the layout publishes, to the name in the files."""
    found: dict[str, str] = {}
    for name in weights.shapes:
        published = name if layout is None else published_name(name, layout)
        if published in found:
            raise InteropError(f"{folder} holds {name} and {found[published]}, which are one tensor; keep one")
        found[published] = name
    return found


def _target_type(folder: Path, description: Description, dtype: str | None) -> str:
    """The type to keep the weights in."""
    kept = dtype or description.dtype
    if kept not in DTYPES:
        raise InteropError(f"{folder} holds {kept} weights; convert them with --dtype float32 or bfloat16")
    return kept


def _read(folder: Path, weights: Weights, name: str, dtype: torch.dtype) -> Tensor:
    tensor = weights.read(name)
    if weights.types[name] not in _TYPES:
        known = ", ".join(_TYPES.values())
        raise InteropError(f"{folder}: {name} is {weights.types[name]}; weights must be {known}")
    if not finite(tensor):
        raise InteropError(f"{folder}: {name} holds NaN or infinite numbers; the checkpoint is damaged or diverged")
    return tensor.to(dtype)
