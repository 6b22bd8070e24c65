"""Shards give every document back, are built once, whole or not at all, and are checked when opened."""

import multiprocessing
import shutil
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from workers.config import DataConfig
from workers.data import DataError, data_fingerprint, prepare
from workers.data.bpe_tokenizer import BpeTokenizer
from workers.data.corpus import read_corpus
from workers.data.shards import Shards, open_or_build
from workers.data.tokenizer import ByteTokenizer, Tokenizer


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for index in range(40):
        words = " ".join(f"name_{index}_{word} = {word * index}\n" for word in range(30))
        (folder / f"{index}.py").write_text(words + "# ünïcödé\n", encoding="utf-8")
    return folder


def config(texts: Path, vocab: str = "bytes") -> DataConfig:
    return DataConfig(corpus=f"files:{texts}/*.py", vocab=vocab, seq_len=32, eval_sequences=8)


def build(texts: Path, home: Path, vocab: str = "bytes") -> Shards:
    data = config(texts, vocab)
    return open_or_build(read_corpus(data.corpus), data, home)


def tokenizer_of(shards: Shards) -> Tokenizer:
    if shards.manifest["vocab"] == "bytes":
        return ByteTokenizer()
    text = (shards.folder / "tokenizer.json").read_text(encoding="utf-8")
    return BpeTokenizer.from_json(text, shards.manifest["vocab_size"])


@pytest.mark.parametrize("vocab", ["bytes", "bpe:400"])
def test_every_document_can_be_read_back_from_its_split(texts: Path, tmp_path: Path, vocab: str) -> None:
    shards = build(texts, tmp_path, vocab)
    tokenizer = tokenizer_of(shards)
    tokens = np.concatenate([shards.tokens("train"), shards.tokens("val")])
    index = np.load(shards.folder / "index.npy")
    assert index[-1] == len(tokens)
    assert len(index) == len(shards.manifest["files"]) + 1 == 41
    for start, end, file in zip(index[:-1], index[1:], shards.manifest["files"], strict=True):
        assert tokens[end - 1] == tokenizer.vocab_size - 1
        assert tokenizer.decode(tokens[start : end - 1]) == (texts / file["name"]).read_bytes()
        assert (file["split"] == "train") == (end <= len(shards.tokens("train")))


@pytest.mark.parametrize("vocab", ["bytes", "bpe:400"])
def test_the_manifest_counts_bytes_and_tokens_exactly(texts: Path, tmp_path: Path, vocab: str) -> None:
    shards = build(texts, tmp_path, vocab)
    for split, counts in shards.manifest["splits"].items():
        files = [file for file in shards.manifest["files"] if file["split"] == split]
        assert counts["documents"] == len(files) > 0
        assert counts["bytes"] == sum((texts / file["name"]).stat().st_size for file in files)
        assert counts["bytes"] == shards.token_bytes()[shards.tokens(split)].sum()
        assert counts["tokens"] == len(shards.tokens(split))
    assert shards.tokens("train").dtype == np.uint16


def test_bpe_learns_from_the_training_split_alone(texts: Path, tmp_path: Path) -> None:
    corpus = read_corpus(f"files:{texts}/*.py")
    expected = BpeTokenizer.train(400, [document.text for document in corpus.split()[0]]).to_json()
    assert (build(texts, tmp_path, "bpe:400").folder / "tokenizer.json").read_text(encoding="utf-8") == expected


def test_the_fingerprint_is_known_before_building_and_names_the_folder(texts: Path, tmp_path: Path) -> None:
    identity = data_fingerprint(config(texts))
    assert not list(tmp_path.iterdir())
    assert build(texts, tmp_path).folder == tmp_path / identity
    assert [path.name for path in tmp_path.iterdir()] == [identity]
    assert data_fingerprint(config(texts, "bpe:400")) != identity


def test_a_second_opening_builds_nothing(texts: Path, tmp_path: Path) -> None:
    before = (build(texts, tmp_path).folder / "train.bin").stat()
    after = (build(texts, tmp_path).folder / "train.bin").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def build_at_once(texts: Path, home: Path, barrier: Barrier) -> None:
    barrier.wait()
    prepare(config(texts), home)


def test_processes_that_build_at_once_end_with_one_folder(texts: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    processes = [context.Process(target=build_at_once, args=(texts, tmp_path, barrier)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert [path.name for path in tmp_path.iterdir()] == [data_fingerprint(config(texts))]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_bytes(b"x")
    with pytest.raises(DataError, match="too few"):
        prepare(DataConfig(corpus=f"files:{tmp_path}/one.txt"), tmp_path / "home")
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.parametrize("name", ["train.bin", "val.bin", "index.npy", "token_bytes.npy", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_file_is_named(texts: Path, tmp_path: Path, name: str, damage: str) -> None:
    path = build(texts, tmp_path).folder / name
    content = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if damage == "truncate" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=f"{name} is damaged.*delete"):
        build(texts, tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"format": "other/1"}'])
def test_a_folder_without_a_right_manifest_is_refused(texts: Path, tmp_path: Path, text: str) -> None:
    (build(texts, tmp_path).folder / "manifest.json").write_text(text)
    with pytest.raises(DataError, match="delete"):
        build(texts, tmp_path)


def test_a_deleted_folder_is_built_anew(texts: Path, tmp_path: Path) -> None:
    first = build(texts, tmp_path)
    tokens = np.array(first.tokens("train"))
    shutil.rmtree(first.folder)
    assert np.array_equal(build(texts, tmp_path).tokens("train"), tokens)
