"""The safetensors files of a folder: one `model.safetensors`, or shards and the index that says where a tensor is.

    with open_weights(folder) as weights:
        weights.shapes, weights.types        of every tensor, from the headers
        weights.read(name)                   mapped from the file, not copied
    write_weights(folder, tensors, shard_bytes)

No file outside the folder is opened and no other format is read: a pickle can run code when it is opened.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from workers.interop.description import read_json
from workers.interop.errors import InteropError
from workers.interop.names import Shape

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True)
class Weights:
    """The opened files of one folder."""

    shapes: Mapping[str, Shape]
    types: Mapping[str, str]
    """Safetensors' names of types: `F32`, `BF16`, `F16`, ..."""
    metadata: Mapping[str, str]
    """What every file's header agrees on."""
    files: Mapping[str, Any]
    """The open file of every tensor."""

    def read(self, name: str) -> Tensor:
        """One tensor, on the CPU; its bytes are read from the file as they are touched."""
        tensor: Tensor = self.files[name].get_tensor(name)
        return tensor


@contextmanager
def open_weights(folder: Path) -> Iterator[Weights]:
    """Open the weights of `folder`; an `InteropError` names the file or tensor that does not fit."""
    index = _read_index(folder)
    shapes: dict[str, Shape] = {}
    types: dict[str, str] = {}
    files: dict[str, Any] = {}
    headers: list[Mapping[str, str]] = []
    with ExitStack() as stack:
        for file in sorted(set(index.values())) if index is not None else [WEIGHTS_FILE]:
            opened = stack.enter_context(_open(folder / file))
            headers.append(opened.metadata() or {})
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                if name in files:
                    raise InteropError(f"{folder} holds {name} in two files; keep one")
                if index is not None and index.get(name) != file:
                    raise InteropError(f"{folder / file} holds {name}, which {INDEX_FILE} places elsewhere or nowhere")
                part = opened.get_slice(name)
                shapes[name], types[name], files[name] = tuple(part.get_shape()), part.get_dtype(), opened
        lost = sorted(set(index or {}) - set(files))
        if lost:
            raise InteropError(
                f"{folder / str((index or {})[lost[0]])} lacks {lost[0]}, which {INDEX_FILE} places there"
            )
        yield Weights(shapes, types, _agreed(folder, headers), files)


def write_weights(folder: Path, tensors: Mapping[str, Tensor], shard_bytes: int, metadata: Mapping[str, str]) -> None:
    """Write tensors into `folder` in their order: one file, or shards of at most `shard_bytes` and an index.

    A tensor that is larger than that gets a shard of its own.
    """
    shards: list[list[str]] = [[]]
    room = shard_bytes
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if size > room and shards[-1]:
            shards.append([])
            room = shard_bytes
        shards[-1].append(name)
        room -= size
    header = {"format": "pt", **metadata}
    placed: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = WEIGHTS_FILE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file({name: tensors[name] for name in names}, folder / file, metadata=header)
        _sort_header(folder / file)
        placed |= dict.fromkeys(names, file)
    if len(shards) > 1:
        total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": placed}
        (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _sort_header(path: Path) -> None:
    """Put the header's metadata in order, which safetensors leaves to chance: equal weights are then equal files."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        file.seek(8)
        file.write(text.ljust(length))
    path.chmod(0o644)  # safetensors' own files are private


def finite(tensor: Tensor) -> bool:
    """Whether no number of a tensor is NaN or infinite; nothing of its size is allocated."""
    return all(bool(torch.isfinite(end)) for end in torch.aminmax(tensor))


def _read_index(folder: Path) -> dict[str, str] | None:
    """File by tensor name, or None when there is no index; names that leave the folder are refused."""
    path = folder / INDEX_FILE
    if not path.exists():
        return None
    placed = read_json(path).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise InteropError(f"{path} has no weight_map of tensors to files")
    for name, file in placed.items():
        plain = isinstance(file, str) and file == Path(file).name and file.endswith(".safetensors")
        if not plain:
            raise InteropError(f"{path} places {name} in {file!r}; it must be a .safetensors file beside the index")
    return placed


def _open(path: Path) -> Any:
    if not path.is_file():
        pickles = sorted(file.name for file in path.parent.iterdir() if file.suffix in PICKLE_SUFFIXES)
        if pickles:
            raise InteropError(
                f"{path.parent} holds {', '.join(pickles)} and no {path.name}: a pickle can run code when it is "
                "opened, so it is not read; convert it to safetensors"
            )
        raise InteropError(f"{path} does not exist; a checkpoint folder holds config.json and {WEIGHTS_FILE}")
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise InteropError(f"{path} is damaged or not a safetensors file ({error}); fetch it again") from None


def _agreed(folder: Path, headers: list[Mapping[str, str]]) -> dict[str, str]:
    """What the headers say; shards that contradict each other are of different checkpoints."""
    agreed: dict[str, str] = {}
    for header in headers:
        for key, value in header.items():
            if agreed.setdefault(key, value) != value:
                raise InteropError(f"{folder}: the shards disagree about {key} ({agreed[key]!r} and {value!r})")
    return agreed
