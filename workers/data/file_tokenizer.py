"""The tokenizer of a checkpoint that others trained, from its `tokenizer.json`, by the `tokenizers` library.

Byte-level BPE only: there every token is a fixed string of bytes, so that bits per byte can be counted. Special tokens
are text where a text spells them; nothing is added to a text.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Engine
from tokenizers import pre_tokenizers

from workers.config.data_config import TokenizerFile
from workers.data.errors import DataError


class FileTokenizer:
    """A tokenizer of at most `vocab_size` ids, `separator` being the one that ends a document."""

    def __init__(self, engine: Engine, file: TokenizerFile) -> None:
        self.vocab_size = file.vocab_size
        self.separator = file.end
        self._engine = engine
        self._engine.encode_special_tokens = True

    @classmethod
    def read(cls, file: TokenizerFile) -> "FileTokenizer":
        """The tokenizer in a file; a `DataError` when it has changed, is damaged, or is larger than the model."""
        path = Path(file.path)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError(
                f"{path} cannot be read ({error.strerror}); the study takes its tokenizer from it"
            ) from error
        if hashlib.sha256(content).hexdigest()[:16] != file.sha256:
            raise DataError(f"{path} is not the tokenizer that the study began with; restore it")
        try:
            engine = Engine.from_str(content.decode())
        except Exception as error:  # the library raises bare Exceptions
            raise DataError(f"{path} is no tokenizer that can be read ({error})") from error
        largest = max(engine.get_vocab().values(), default=0)
        if max(largest, file.end) >= file.vocab_size:
            raise DataError(f"{path} has token {max(largest, file.end)}; the model has {file.vocab_size} token ids")
        return cls(engine, file)

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """Token ids (T,) of each UTF-8 text."""
        encodings = self._engine.encode_batch_fast([text.decode() for text in texts], add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def decode(self, ids: NDArray[np.integer[Any]]) -> bytes:
        """The text of token ids (T,); separators are dropped."""
        text: str = self._engine.decode(ids[ids != self.separator].tolist(), skip_special_tokens=False)
        return text.encode()

    def token_bytes(self) -> NDArray[np.int64]:
        """Bytes of each id, (V,): in the byte-level alphabet one character is one byte; 0 for every other token."""
        alphabet = set(pre_tokenizers.ByteLevel.alphabet())
        special = self._engine.get_added_tokens_decoder()
        lengths = np.zeros(self.vocab_size, dtype=np.int64)
        for token, index in self._engine.get_vocab().items():
            if index not in special and alphabet.issuperset(token):
                lengths[index] = len(token)
        return lengths

    def to_json(self) -> str:
        """The library's own format."""
        text: str = self._engine.to_str()
        return text
