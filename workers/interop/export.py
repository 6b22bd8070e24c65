"""A checkpoint as a folder that other engines load.

    <target>/
      config.json, model.safetensors          or shards and model.safetensors.index.json
      configuration_*.py, modeling_*.py       for layouts that transformers does not have itself
      tokenizer.json, tokenizer_config.json   where there is a tokenizer
      README.md                               the model card

The folder appears whole or not at all.
"""

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from workers.config import ModelConfig
from workers.config.checkpoint_config import CONFIG_FILE
from workers.interop.gguf_file import GGUF_FILE, write_gguf
from workers.interop.layout import Layout, choose_layout, require_layout
from workers.interop.model_card import Origin, write_card
from workers.interop.names import is_negated, layout_names
from workers.interop.new_folder import new_folder, refuse_existing
from workers.interop.reading import load_model
from workers.interop.settings import write_settings
from workers.interop.tokenizer_files import copy_tokenizer, end_of_text, write_tokenizer
from workers.interop.weight_files import write_weights
from workers.models import LoopedTransformer

SHARD_BYTES = 5_000_000_000
"""Largest weight file, unless asked otherwise; what the hubs like."""
REMOTE_CODE = Path(__file__).parent / "remote_code"
_CODE_FILES = {
    Layout.LLAMA: (),
    Layout.LOOP: (
        "configuration_iquestloopcoder.py",
        "modeling_iquestloopcoder.py",
        "configuration_iquestpltcoder.py",
        "modeling_iquestpltcoder.py",
    ),
    Layout.PLT: ("configuration_iquestpltcoder.py", "modeling_iquestpltcoder.py"),
}


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export made."""

    folder: Path
    config: ModelConfig
    layout: Layout
    files: tuple[str, ...]


def export_model(
    source: Path,
    target: Path,
    *,
    layout: Layout | None = None,
    shard_bytes: int = SHARD_BYTES,
    tokenizer: str | None = None,
    tokenizer_folder: Path | None = None,
    origin: Origin | None = None,
) -> Exported:
    """Write the checkpoint in `source` to the new folder `target`.

    Without a layout the one that most engines read is taken. `tokenizer` is the text of one of ours; without it the
    tokenizer files in `tokenizer_folder`, by default beside the checkpoint, are copied. An `InteropError` says why a
    layout cannot express the model, or what is wrong with either folder.
    """
    refuse_existing(target)
    model = load_model(source)
    layout = layout or choose_layout(model.config)
    require_layout(model.config, layout)
    with new_folder(target) as folder:
        for name in _CODE_FILES[layout]:
            shutil.copyfile(REMOTE_CODE / name, folder / name)
        end_token = _add_tokenizer(folder, model.config, tokenizer, tokenizer_folder or source)
        has_tokenizer = (folder / "tokenizer.json").exists()
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        settings = write_settings(model.config, layout, dtype, end_token)
        (folder / CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        loops = {} if layout is Layout.LLAMA else {"num_loops": str(model.config.num_loops)}
        write_weights(folder, _tensors(model, layout), shard_bytes, loops)
        card = write_card(target.name, model.config, layout, origin or Origin(), has_tokenizer=has_tokenizer)
        (folder / "README.md").write_text(card, encoding="utf-8")
        files = tuple(sorted(path.name for path in folder.iterdir()))
    return Exported(folder=target, config=model.config, layout=layout, files=files)


def export_gguf(
    source: Path,
    target: Path,
    *,
    tokenizer: str | None = None,
    tokenizer_folder: Path | None = None,
    origin: Origin | None = None,
) -> tuple[str, ...]:
    """Write the checkpoint in `source`, which has one loop, to the new folder `target` as a GGUF file and its card."""
    refuse_existing(target)
    model = load_model(source)
    with new_folder(target) as folder, tempfile.TemporaryDirectory() as scratch:
        _add_tokenizer(Path(scratch), model.config, tokenizer, tokenizer_folder or source)
        vocabulary = Path(scratch) / "tokenizer.json"
        write_gguf(model, folder / GGUF_FILE, vocabulary if vocabulary.exists() else None)
        card = write_card(target.name, model.config, None, origin or Origin(), has_tokenizer=vocabulary.exists())
        (folder / "README.md").write_text(card, encoding="utf-8")
        return tuple(sorted(path.name for path in folder.iterdir()))


def _tensors(model: LoopedTransformer, layout: Layout) -> dict[str, Tensor]:
    """The tensors under the layout's names, gates turned to weigh the full-context branch."""
    state = model.state_dict()
    return {
        theirs: -state[ours] if is_negated(ours, model.config) else state[ours]
        for theirs, ours in layout_names(model.config, layout).items()
    }


def _add_tokenizer(folder: Path, config: ModelConfig, ours: str | None, beside: Path) -> int | None:
    """Write our tokenizer to `folder`, or copy those files `beside` a checkpoint; the id that ends a text, if known."""
    if ours is not None:
        write_tokenizer(folder, ours, config.vocab_size)
    else:
        copy_tokenizer(beside, folder)
    return end_of_text(folder)
