"""Our tokenizers as Hugging Face files: the same ids for the same text, and the separator as the end of a text.

Byte-level BPE is what both sides have; bytes are the same without merges.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from workers.config.data_config import BYTES_VOCAB_SIZE
from workers.interop.description import read_json
from workers.interop.errors import InteropError

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)
"""What may lie beside a checkpoint and says how its text is cut; copied as it is."""
END_OF_TEXT = "<|endoftext|>"


def write_tokenizer(folder: Path, ours: str, vocab_size: int) -> None:
    """Write the tokenizer whose text (`Tokenizer.to_json`) is `ours`, for a model of `vocab_size` ids."""
    engine = json.loads(ours)
    if engine.get("kind") == "bytes":
        engine = _bytes_engine()
    vocab, end = engine["model"]["vocab"], vocab_size - 1
    if len(vocab) > end or any(index >= end for index in vocab.values()):
        raise InteropError(
            f"the tokenizer has {len(vocab)} tokens; a model of {vocab_size} ids must have been cut by another"
        )
    taken = set(vocab.values())
    vocab |= {f"<|unused{index}|>": index for index in range(end) if index not in taken}
    vocab[END_OF_TEXT] = end
    engine["added_tokens"] = [
        {
            "id": end,
            "content": END_OF_TEXT,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ]
    (folder / "tokenizer.json").write_text(json.dumps(engine, ensure_ascii=False), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "padding_side": "left",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy those files that lie in `source`, which others may have made: a link to anywhere else is refused.

    In the hub's cache every file of a snapshot is a link to a blob beside it.
    """
    home = source.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    for name in TOKENIZER_FILES:
        path = source / name
        if not path.is_file():
            continue
        if path.resolve().parent not in (home, blobs):
            raise InteropError(f"{path} is a link out of the folder; replace it by the file")
        shutil.copyfile(path, target / name)


def end_of_text(folder: Path) -> int | None:
    """The id of the token that `tokenizer_config.json` calls the end of a text, if there is one."""
    settings, tokenizer = folder / "tokenizer_config.json", folder / "tokenizer.json"
    if not (settings.is_file() and tokenizer.is_file()):
        return None
    end, engine = read_json(settings).get("eos_token"), read_json(tokenizer)
    name = end.get("content") if isinstance(end, dict) else end
    added = {entry["content"]: entry["id"] for entry in engine.get("added_tokens", [])}
    index = added.get(name, engine.get("model", {}).get("vocab", {}).get(name))
    return index if isinstance(index, int) else None


def _bytes_engine() -> dict[str, Any]:
    """A byte-level BPE without merges whose ids are the byte values."""
    whole = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": whole,
        "post_processor": None,
        "decoder": whole,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {letter: value for value, letter in enumerate(_byte_letters())},
            "merges": [],
        },
    }


def _byte_letters() -> list[str]:
    """The letter of each byte in the byte-level alphabet (GPT-2): itself where it prints, else one from 256 up."""
    printing = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    letters, next_letter = [], BYTES_VOCAB_SIZE - 1
    for value in range(BYTES_VOCAB_SIZE - 1):
        letters.append(chr(value if value in printing else next_letter))
        next_letter += value not in printing
    return letters
