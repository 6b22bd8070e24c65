"""Tokenizers turn UTF-8 text into token ids without loss.

One id is the document separator, the last one unless a file says otherwise; every other id stands for a fixed string of
one or more bytes, so that the bytes of any token sequence can be counted and losses of different tokenizers compared as
bits per byte.

- `ByteTokenizer`: ids 0..255 are the byte values, 256 the separator. Needs nothing but numpy.
- `BpeTokenizer`: byte-level BPE of a given size, trained on the training split by the `tokenizers` library, which is
  imported only when one is trained or read.
- `FileTokenizer`: the byte-level `tokenizer.json` of a checkpoint, whose separator is that checkpoint's own.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.config.data_config import BYTES_VOCAB_SIZE
from workers.data.errors import DataError


class Tokenizer(Protocol):
    """UTF-8 text to token ids and back."""

    vocab_size: int
    """Number of ids, V."""

    @property
    def separator(self) -> int:
        """The id that ends a document."""

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """Token ids (T,) of each text, without separator."""

    def decode(self, ids: NDArray[np.integer[Any]]) -> bytes:
        """The text of token ids (T,); separators are dropped."""

    def token_bytes(self) -> NDArray[np.int64]:
        """Bytes that each id stands for, (V,); 0 for the separator."""

    def to_json(self) -> str:
        """The whole tokenizer as text; the same text is the same tokenizer."""


def make_tokenizer(data: DataConfig, training_texts: Iterable[bytes]) -> Tokenizer:
    """The tokenizer that `data.vocab` names, trained on these texts if it has to be."""
    if data.bpe_size is None and data.tokenizer is None:
        return ByteTokenizer()
    try:
        from workers.data.bpe_tokenizer import BpeTokenizer
        from workers.data.file_tokenizer import FileTokenizer
    except ModuleNotFoundError as error:
        raise DataError(
            f"vocab is {data.vocab!r} and {error.name} is not installed; install it or use bytes"
        ) from error
    if data.tokenizer is not None:
        return FileTokenizer.read(data.tokenizer)
    assert data.bpe_size is not None
    return BpeTokenizer.train(data.bpe_size, training_texts)


def read_tokenizer(text: str, vocab_size: int) -> Tokenizer:
    """The tokenizer that `to_json` wrote."""
    if json.loads(text).get("kind") == "bytes":
        return ByteTokenizer()
    from workers.data.bpe_tokenizer import BpeTokenizer

    return BpeTokenizer.from_json(text, vocab_size)


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """SHA-256 of the tokenizer's text, in hex."""
    return hashlib.sha256(tokenizer.to_json().encode()).hexdigest()


class ByteTokenizer:
    """Every byte is a token."""

    vocab_size = BYTES_VOCAB_SIZE
    separator = BYTES_VOCAB_SIZE - 1

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """Byte values (T,) of each text."""
        return [np.frombuffer(text, dtype=np.uint8).astype(np.int64) for text in texts]

    def decode(self, ids: NDArray[np.integer[Any]]) -> bytes:
        """The text of token ids (T,); separators are dropped."""
        return ids[ids < self.vocab_size - 1].astype(np.uint8).tobytes()

    def token_bytes(self) -> NDArray[np.int64]:
        """One per byte value, none for the separator, (257,)."""
        return np.append(np.ones(self.vocab_size - 1, dtype=np.int64), 0)

    def to_json(self) -> str:
        """Names the kind; there is nothing to learn."""
        return json.dumps({"kind": "bytes", "vocab_size": self.vocab_size})
