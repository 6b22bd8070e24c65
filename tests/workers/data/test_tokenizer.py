"""Tokenizers lose nothing, and know how many bytes each token stands for."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.config import DataConfig
from workers.data.bpe_tokenizer import BpeTokenizer
from workers.data.tokenizer import ByteTokenizer, Tokenizer, make_tokenizer

TEXTS = tuple(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))


@cache
def tokenizer(vocab: str) -> Tokenizer:
    return make_tokenizer(DataConfig(vocab=vocab), TEXTS)


@pytest.mark.parametrize("vocab", ["bytes", "bpe:257", "bpe:600"])
@given(text=st.text() | st.just("<|endoftext|> is no separator\r\n\t"))
def test_decoding_gives_the_text_back_and_every_byte_is_counted(vocab: str, text: str) -> None:
    (ids,) = tokenizer(vocab).encode([text.encode()])
    assert tokenizer(vocab).decode(ids) == text.encode()
    assert tokenizer(vocab).token_bytes()[ids].sum() == len(text.encode())
    assert len(ids) == 0 or ids.max() < tokenizer(vocab).vocab_size - 1  # the last id is the separator's alone


@pytest.mark.parametrize(("vocab", "size"), [("bytes", 257), ("bpe:257", 257), ("bpe:600", 600)])
def test_the_separator_is_the_last_id_and_has_no_bytes(vocab: str, size: int) -> None:
    assert tokenizer(vocab).vocab_size == size == DataConfig(vocab=vocab).vocab_size
    lengths = tokenizer(vocab).token_bytes()
    assert lengths.shape == (size,)
    assert lengths[-1] == 0
    assert (lengths[:-1] > 0).all()
    assert tokenizer(vocab).decode(np.array([size - 1, size - 1])) == b""


def test_bytes_are_their_own_values() -> None:
    (ids,) = ByteTokenizer().encode(["aé".encode()])
    assert ids.tolist() == [0x61, 0xC3, 0xA9]


def test_merges_join_the_most_frequent_pairs_first() -> None:
    trained = BpeTokenizer.train(256 + 2 + 1, [b"abcabcabc abab"])
    (ids,) = trained.encode([b"abc"])
    assert trained.token_bytes()[ids].tolist() == [3]  # "ab" (5 times), then "abc" (3 times)


def test_bpe_shortens_the_text_it_was_trained_on() -> None:
    text = b"".join(TEXTS)
    assert len(tokenizer("bpe:600").encode([text])[0]) < 0.6 * len(text)


def test_a_written_bpe_tokenizer_reads_back_the_same() -> None:
    original = tokenizer("bpe:600")
    again = BpeTokenizer.from_json(original.to_json(), 600)
    assert again.to_json() == original.to_json()
    assert again.encode([TEXTS[0]])[0].tolist() == original.encode([TEXTS[0]])[0].tolist()


def test_a_corpus_too_small_for_the_merges_keeps_the_size_asked_for() -> None:
    small = BpeTokenizer.train(1000, [b"ab"])
    assert small.vocab_size == 1000
    assert small.token_bytes().shape == (1000,)
