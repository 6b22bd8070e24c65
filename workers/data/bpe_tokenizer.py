"""Byte-level byte-pair encoding (Sennrich et al. 2016, over bytes as in GPT-2), by the `tokenizers` library.

256 byte values come first, then the learned merges, then unused ids if the corpus ran out of pairs, and the document
separator is the last id. The separator is not known to the library, so no text can spell it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, trainers


class BpeTokenizer:
    """A trained byte-level BPE of `vocab_size` ids, separator included."""

    def __init__(self, engine: Engine, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.separator = vocab_size - 1
        self._engine = engine

    @classmethod
    def train(cls, vocab_size: int, texts: Iterable[bytes]) -> "BpeTokenizer":
        """Learn merges from UTF-8 texts; takes seconds for ten megabytes."""
        engine = Engine(models.BPE())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        )
        engine.train_from_iterator((text.decode() for text in texts), trainer)
        return cls(engine, vocab_size)

    @classmethod
    def from_json(cls, text: str, vocab_size: int) -> "BpeTokenizer":
        """The tokenizer that `to_json` wrote."""
        return cls(Engine.from_str(text), vocab_size)

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """Token ids (T,) of each UTF-8 text."""
        encodings = self._engine.encode_batch_fast([text.decode() for text in texts], add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def decode(self, ids: NDArray[np.integer[Any]]) -> bytes:
        """The text of token ids (T,); separators are dropped."""
        text: str = self._engine.decode(ids[ids < self.vocab_size - 1].tolist(), skip_special_tokens=False)
        return text.encode()

    def token_bytes(self) -> NDArray[np.int64]:
        """Bytes of each id, (V,): in the byte-level alphabet one character is one byte."""
        lengths = np.zeros(self.vocab_size, dtype=np.int64)
        for token, index in self._engine.get_vocab().items():
            lengths[index] = len(token)
        return lengths

    def to_json(self) -> str:
        """The library's own format."""
        text: str = self._engine.to_str()
        return text
