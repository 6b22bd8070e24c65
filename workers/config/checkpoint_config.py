"""`config.json` of a checkpoint folder of ours, read strictly; no torch.

It holds the sizes under Hugging Face's names and the loop knobs under ours, flat, with a few settings that other
software writes out and that have only one value here.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from workers.config.model_config import ModelConfig

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
FORMAT = "plt/1"
DTYPES = ("float32", "bfloat16", "float64")
"""Types that weights of ours may have."""
_LABELS = ("format", "name")


class CheckpointError(ValueError):
    """A checkpoint folder that cannot be read as a looped transformer; the message names the file or tensor."""


def describe_checkpoint(config: ModelConfig, dtype: str) -> dict[str, Any]:
    """The content of `config.json` for a model whose weights have type `dtype`."""
    return {"format": FORMAT, **config.to_dict(), **_fixed_settings(config), "torch_dtype": dtype}


def read_checkpoint_config(folder: Path) -> tuple[ModelConfig, str]:
    """The model and the type of its weights; a `CheckpointError` names the setting that does not fit."""
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
    if dtype not in DTYPES:
        raise CheckpointError(f"{path}: torch_dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
    return config, dtype


def _fixed_settings(config: ModelConfig) -> dict[str, Any]:
    """Settings that other software writes out and that have only one value here."""
    return {"head_dim": config.head_dim, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
