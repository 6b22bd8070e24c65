"""Our tokenizers in Hugging Face's files: the same ids for the same text, both ways."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from workers.config import DataConfig
from workers.config.data_config import TokenizerFile
from workers.data.bpe_tokenizer import BpeTokenizer
from workers.data.errors import DataError
from workers.data.file_tokenizer import FileTokenizer
from workers.data.tokenizer import ByteTokenizer, Tokenizer, make_tokenizer
from workers.fingerprint import fingerprint
from workers.interop.tokenizer_files import end_of_text, write_tokenizer

TEXTS = ["def f(x):\n    return x + 1\n", "naïve Δ — 漢字 🙂\n\t  spaces  ", "<|endoftext|> is text here", ""]


def trained(size: int) -> BpeTokenizer:
    return BpeTokenizer.train(size, [text.encode() for text in TEXTS[:2] * 20])


@pytest.fixture(params=["bytes", "bpe:280", "bpe:2000"])
def ours(request: pytest.FixtureRequest) -> Tokenizer:
    """The largest runs out of pairs: most of its ids stand for nothing."""
    return ByteTokenizer() if request.param == "bytes" else trained(int(request.param.removeprefix("bpe:")))


def written(ours: Tokenizer, folder: Path) -> TokenizerFile:
    import hashlib

    write_tokenizer(folder, ours.to_json(), ours.vocab_size)
    path = folder / "tokenizer.json"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return TokenizerFile(vocab_size=ours.vocab_size, end=ours.vocab_size - 1, sha256=digest, path=str(path))


def test_transformers_cuts_text_as_we_do(ours: Tokenizer, tmp_path: Path) -> None:
    written(ours, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert len(theirs) == ours.vocab_size
    assert theirs.eos_token_id == end_of_text(tmp_path) == ours.vocab_size - 1
    for text, ids in zip(TEXTS[:2], ours.encode([text.encode() for text in TEXTS[:2]]), strict=True):
        assert theirs(text)["input_ids"] == ids.tolist()
        assert theirs.decode(ids) == text
    assert theirs("a<|endoftext|>")["input_ids"][-1] == ours.vocab_size - 1


def test_we_read_it_back_as_it_was(ours: Tokenizer, tmp_path: Path) -> None:
    file = written(ours, tmp_path)
    again = make_tokenizer(DataConfig(vocab=str(file)), [])
    assert (again.vocab_size, again.separator) == (ours.vocab_size, ours.separator)
    texts = [text.encode() for text in TEXTS]
    for text, left, right in zip(texts, ours.encode(texts), again.encode(texts), strict=True):
        assert left.tolist() == right.tolist()
        assert again.token_bytes()[right].sum() == len(text)
        assert again.decode(np.append(right, again.separator)) == text


def test_a_tokenizer_that_changed_or_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = written(trained(280), tmp_path)
    small = TokenizerFile(vocab_size=270, end=0, sha256=file.sha256, path=file.path)
    with pytest.raises(DataError, match="has token 279; the model has 270 token ids"):
        FileTokenizer.read(small)
    Path(file.path).write_text(Path(file.path).read_text() + " ")
    with pytest.raises(DataError, match="is not the tokenizer that the study began with"):
        FileTokenizer.read(file)
    Path(file.path).unlink()
    with pytest.raises(DataError, match="cannot be read"):
        FileTokenizer.read(file)


def test_how_a_tokenizer_stands_in_a_configuration() -> None:
    file = TokenizerFile(vocab_size=300, end=2, sha256=fingerprint("x"), path="/a:b/tokenizer.json")
    data = DataConfig(vocab=str(file))
    assert (data.tokenizer, data.vocab_size, data.bpe_size) == (file, 300, None)
    with pytest.raises(ValueError, match="vocab is 'tokenizer:300'"):
        DataConfig(vocab="tokenizer:300")
