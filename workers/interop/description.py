"""What a checkpoint folder says it is, whichever layout it has, from `config.json` alone; no torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.config import ModelConfig
from workers.config.checkpoint_config import CONFIG_FILE, CheckpointError, read_checkpoint_config
from workers.interop.errors import InteropError
from workers.interop.layout import Layout
from workers.interop.settings import read_settings

_LARGEST = 64 << 20
"""Bytes of JSON that are read; the index of a model with a million tensors is this large."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """One folder."""

    config: ModelConfig
    """Normalised, with gates that weigh the full-context branch unless the folder is ours."""
    dtype: str
    """Type of the weights, as `config.json` has it."""
    layout: Layout | None
    """None: this project's own."""


def describe(folder: Path) -> Description:
    """Read `config.json`; an `InteropError` names the file and the setting that does not fit."""
    path = folder / CONFIG_FILE
    settings = read_json(path)
    if "model_type" not in settings:
        try:
            config, dtype = read_checkpoint_config(folder)
        except CheckpointError as error:
            raise InteropError(str(error)) from None
        return Description(config=config.normalised(), dtype=dtype, layout=None)
    try:
        config, layout, dtype = read_settings(settings)
    except InteropError as error:
        raise InteropError(f"{path}: {error}") from None
    return Description(config=config, dtype=dtype, layout=layout)


def read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file of a foreign folder; an `InteropError` when it is none."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        remedy = f"a checkpoint folder holds {CONFIG_FILE} and model.safetensors"
        raise InteropError(f"{path} does not exist; {remedy}") from None
    except OSError as error:
        raise InteropError(f"{path} cannot be read ({error.strerror}); give a folder that you may read") from None
    if len(text) > _LARGEST:
        raise InteropError(f"{path} has more than {_LARGEST:,} bytes, which no such file needs; it is not read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InteropError(f"{path} is not JSON: {str(error)[:100]}") from None
    if not isinstance(data, dict):
        raise InteropError(f"{path} holds a {type(data).__name__}; it must hold an object of settings")
    return data
