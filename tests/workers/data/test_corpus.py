"""Corpora hold the files they say, are named by content, and are split by the hash of each name."""

import hashlib
import shutil
import sysconfig
from pathlib import Path

import pytest

from workers.data import DataError
from workers.data.corpus import Corpus, Document, read_corpus


def write(root: Path, **texts: bytes) -> Path:
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return root


def corpus_of(names: list[str]) -> Corpus:
    return Corpus("made", "none", tuple(Document.of(name, name.encode()) for name in sorted(names)), ())


def test_stdlib_is_the_python_sources_without_tests_and_tables() -> None:
    corpus = read_corpus("stdlib")
    names = {document.name for document in corpus.documents}
    root = Path(sysconfig.get_path("stdlib"))
    assert {"os.py", "json/decoder.py", "asyncio/events.py", "unittest/case.py"} <= names
    assert not any(
        part in name.split("/") for name in names for part in ("test", "tests", "encodings", "site-packages")
    )
    assert not any("lib2to3/" in name or "pydoc_data/" in name or "_sysconfigdata" in name for name in names)
    for document in corpus.documents[::50]:
        assert (root / document.name).read_bytes() == document.text
    assert max(len(document.text) for document in corpus.documents) <= 200_000
    assert sum(len(document.text) for document in corpus.documents) > 5_000_000
    assert [document.name for document in corpus.documents] == sorted(names)


def test_a_large_corpus_is_split_by_the_hash_of_each_name() -> None:
    corpus = corpus_of([f"module_{index}.py" for index in range(2000)])
    kept, held_out = corpus.split()
    assert {document.name for document in kept} | {document.name for document in held_out} == {
        document.name for document in corpus.documents
    }
    for documents, expected in ((kept, False), (held_out, True)):
        for document in documents:
            digest = hashlib.sha256(document.name.encode()).hexdigest()
            assert (int(digest[:16], 16) < 0.05 * 2**64) is expected
    assert 60 <= len(held_out) <= 140  # 100 expected, standard deviation 10


def test_a_document_stays_on_its_side_when_others_come() -> None:
    names = [f"module_{index}.py" for index in range(500)]
    held_out = {document.name for document in corpus_of(names).split()[1]}
    more = {document.name for document in corpus_of([*names, "new.py", "newer.py"]).split()[1]}
    assert more - {"new.py", "newer.py"} == held_out


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_small_corpus_has_both_sides(count: int) -> None:
    for start in range(100):
        kept, held_out = corpus_of([f"{start}-{index}.txt" for index in range(count)]).split()
        assert kept
        assert held_out
        assert len(kept) + len(held_out) == count


def test_one_document_is_cut_between_characters() -> None:
    text = "é".encode() * 101
    (kept,), (held_out,) = Corpus("made", "none", (Document.of("one.txt", text),), ()).split()
    assert kept.text + held_out.text == text
    assert kept.text.decode()
    assert held_out.text.decode()
    assert len(held_out.text) == pytest.approx(0.05 * len(text), abs=2)


def test_files_are_found_recursively_and_binary_ones_are_listed_as_skipped(tmp_path: Path) -> None:
    write(tmp_path, a=b"alpha", deep__er__b=b"beta", deep__c=b"\xff\xfe\x00", deep__empty=b"")
    corpus = read_corpus(f"files:{tmp_path}/**")
    assert {document.name: document.text for document in corpus.documents} == {"a": b"alpha", "deep/er/b": b"beta"}
    assert corpus.skipped == ("deep/c",)


def test_the_fingerprint_is_of_content_and_names_not_of_the_place(tmp_path: Path) -> None:
    here = write(tmp_path / "here", a=b"alpha", b=b"beta")
    there = shutil.copytree(here, tmp_path / "over" / "there")
    original = read_corpus(f"files:{here}/*").fingerprint
    assert read_corpus(f"files:{there}/*").fingerprint == original
    write(there, b=b"beta!")
    assert read_corpus(f"files:{there}/*").fingerprint != original
    write(there, b=b"beta")
    (there / "b").rename(there / "c")
    assert read_corpus(f"files:{there}/*").fingerprint != original


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("files:/nowhere/*.py", "matches no file"),
        ("files:/proc/self/mem", "cannot be read"),
        ("files:", "stdlib or files:GLOB"),
        ("wikitext", "stdlib or files:GLOB"),
    ],
)
def test_what_cannot_be_read_is_named(pattern: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint) as caught:
        read_corpus(pattern)
    assert pattern in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_without_text_are_refused(tmp_path: Path) -> None:
    write(tmp_path, a=b"\xff\xfe", b=b"")
    with pytest.raises(DataError, match="2 files hold no UTF-8 text"):
        read_corpus(f"files:{tmp_path}/*")


def test_a_text_too_small_to_split_is_refused() -> None:
    with pytest.raises(DataError, match="1 bytes"):
        Corpus("made", "none", (Document.of("one.txt", b"x"),), ()).split()
