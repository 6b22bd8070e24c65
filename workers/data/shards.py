"""Token shards: a corpus as flat files that every process of a node reads by memmap.

    <fingerprint>/
      train.bin, val.bin   token ids, uint16 (uint32 above 65,536 ids); each document ends with the separator
      index.npy            first token of each document, counted through train.bin and then val.bin, and the end
      token_bytes.npy      bytes that each id stands for
      tokenizer.json       the tokenizer
      manifest.json        what it was made of: hashes, files, licence, bytes and tokens of each split

A folder is written aside and renamed, so it is whole or absent, and two processes that build it at once both end with
the same one. Opening checks every file against the manifest.
"""

import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.data.corpus import Corpus, Document
from workers.data.errors import DataError
from workers.data.tokenizer import Tokenizer, make_tokenizer, tokenizer_hash
from workers.fingerprint import fingerprint

FORMAT = "plt-shards/1"
SPLITS = ("train", "val")


@dataclass(frozen=True)
class Shards:
    """An opened shard folder."""

    folder: Path
    manifest: Mapping[str, Any]

    def tokens(self, split: str) -> NDArray[np.integer[Any]]:
        """Token ids of a split, (T,), read from disk as they are touched."""
        return np.memmap(self.folder / f"{split}.bin", dtype=self.manifest["dtype"], mode="r")

    def token_bytes(self) -> NDArray[np.int64]:
        """Bytes that each id stands for, (V,)."""
        lengths: NDArray[np.int64] = np.load(self.folder / "token_bytes.npy")
        return lengths


def shards_fingerprint(corpus: Corpus, data: DataConfig) -> str:
    """Identity of the shards: what they are made of."""
    return fingerprint({"format": FORMAT, "corpus": corpus.fingerprint, "vocab": data.vocab})


def open_or_build(corpus: Corpus, data: DataConfig, data_folder: Path) -> Shards:
    """The shards of a corpus under `data_folder`, built if they are not there yet."""
    identity = shards_fingerprint(corpus, data)
    folder = data_folder / identity
    if not folder.exists():
        build(corpus, data, folder)
    return open_shards(folder, identity)


def open_shards(folder: Path, identity: str) -> Shards:
    """Check a shard folder against its manifest and open it; a `DataError` names the file that is damaged."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder / 'manifest.json'} cannot be read ({error}); delete {folder} to build it anew"
        ) from error
    if manifest.get("format") != FORMAT or manifest.get("fingerprint") != identity:
        found = f"{manifest.get('format')} of {manifest.get('fingerprint')}"
        raise DataError(f"{folder} holds {found}, not {FORMAT} of {identity}; delete it to build it anew")
    for name, expected in manifest["sha256"].items():
        if _file_hash(folder / name) != expected:
            raise DataError(
                f"{folder / name} is damaged (its SHA-256 is not the manifest's); delete {folder} to build it anew"
            )
    return Shards(folder, manifest)


def build(corpus: Corpus, data: DataConfig, folder: Path) -> None:
    """Tokenize a corpus into `folder`; if another process got there first, its folder stands."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _write(corpus, data, aside, identity=folder.name)
        aside.chmod(0o755)
        try:
            aside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write(corpus: Corpus, data: DataConfig, folder: Path, *, identity: str) -> None:
    splits = dict(zip(SPLITS, corpus.split(), strict=True))
    tokenizer = make_tokenizer(data, (document.text for document in splits["train"]))
    dtype = np.promote_types(np.uint16, np.min_scalar_type(tokenizer.vocab_size - 1))
    lengths = [_write_split(folder / f"{name}.bin", documents, tokenizer, dtype) for name, documents in splits.items()]
    np.save(folder / "index.npy", np.cumsum([0, *lengths[0], *lengths[1]], dtype=np.int64))
    np.save(folder / "token_bytes.npy", tokenizer.token_bytes())
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    manifest = {
        "format": FORMAT,
        "fingerprint": identity,
        "corpus": corpus.name,
        "corpus_fingerprint": corpus.fingerprint,
        "licence": corpus.licence,
        "python": platform.python_version(),
        "vocab": data.vocab,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_sha256": tokenizer_hash(tokenizer),
        "dtype": dtype.name,
        "splits": {
            name: {
                "documents": len(documents),
                "bytes": sum(len(document.text) for document in documents),
                "tokens": int(sum(tokens)),
            }
            for (name, documents), tokens in zip(splits.items(), lengths, strict=True)
        },
        "sha256": {path.name: _file_hash(path) for path in sorted(folder.iterdir())},
        "skipped": list(corpus.skipped),
        "files": [
            {"name": document.name, "split": name, "bytes": len(document.text), "sha256": document.sha256}
            for name, documents in splits.items()
            for document in documents
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _write_split(path: Path, documents: Sequence[Document], tokenizer: Tokenizer, dtype: np.dtype[Any]) -> list[int]:
    """Write a split's tokens and return how many each document has, separator included."""
    token_bytes = tokenizer.token_bytes()
    separator = np.array([tokenizer.separator])
    counts = []
    with path.open("wb") as file:
        for document, ids in zip(documents, tokenizer.encode([each.text for each in documents]), strict=True):
            if token_bytes[ids].sum() != len(document.text):
                raise DataError(f"{document.name} does not survive tokenization; use vocab: bytes")
            file.write(np.concatenate([ids, separator]).astype(dtype).tobytes())
            counts.append(len(ids) + 1)
    return counts


def _file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex; a missing file has none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
