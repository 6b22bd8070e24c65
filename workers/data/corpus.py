"""Corpora: named sets of documents that can be read without a network.

- `stdlib`: the Python files of the running interpreter's standard library, without tests, `encodings/`, `pydoc_data/`,
  `lib2to3/`, build configuration and installed packages. Files over 200 kB (generated tables) are left out.
- `files:GLOB`: every file that a recursive glob matches. Relative globs start at the current folder.

A document is named by its path relative to the corpus's root, with forward slashes, so that the same corpus has the
same fingerprint wherever it lies. Files that are not UTF-8 text are left out and listed in `Corpus.skipped`. One
twentieth of the documents, chosen by the hash of their names, is held out; a document never changes sides.
"""

import glob
import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.data.errors import DataError
from workers.fingerprint import fingerprint

HELD_OUT_SHARE = 0.05
_STDLIB_MAX_BYTES = 200_000
_STDLIB_EXCLUDED = frozenset(
    {
        "test",
        "tests",
        "idle_test",
        "encodings",
        "pydoc_data",
        "lib2to3",
        "site-packages",
        "dist-packages",
        "__pycache__",
    }
)


@dataclass(frozen=True)
class Document:
    """One text of a corpus."""

    name: str
    """Path relative to the corpus's root."""
    text: bytes
    """UTF-8."""
    sha256: str

    @classmethod
    def of(cls, name: str, text: bytes) -> "Document":
        """A document with its hash."""
        return cls(name, text, hashlib.sha256(text).hexdigest())


@dataclass(frozen=True)
class Corpus:
    """Documents in the order of their names."""

    name: str
    licence: str
    documents: tuple[Document, ...]
    skipped: tuple[str, ...]
    """Names of files that were left out: not UTF-8, or too large for `stdlib`."""

    @property
    def fingerprint(self) -> str:
        """Identity by content: the sorted pairs of name and SHA-256."""
        return fingerprint([[document.name, document.sha256] for document in self.documents])

    def split(self) -> tuple[list[Document], list[Document]]:
        """Training and held-out documents, both non-empty.

        In a corpus so small that no hash, or every hash, falls into the held-out share, the document with the smallest
        hash is held out, or the one with the largest kept; of a single document, the last twentieth is held out.
        """
        if len(self.documents) == 1:
            head, tail = _cut(self.documents[0])
            return [head], [tail]
        ranked = sorted(self.documents, key=lambda document: _place(document.name))
        share = sum(_place(document.name) < HELD_OUT_SHARE for document in ranked)
        held_out = {document.name for document in ranked[: min(max(share, 1), len(ranked) - 1)]}
        return (
            [document for document in self.documents if document.name not in held_out],
            [document for document in self.documents if document.name in held_out],
        )


def read_corpus(name: str) -> Corpus:
    """Read `stdlib` or `files:GLOB`; a `DataError` says which glob or file cannot be used."""
    if name == "stdlib":
        return _read_stdlib()
    kind, _, pattern = name.partition(":")
    if kind == "files" and pattern:
        return _read_files(name, pattern)
    raise DataError(f"corpus is {name!r}; it must be stdlib or files:GLOB")


def _read_stdlib() -> Corpus:
    root = Path(sysconfig.get_path("stdlib"))
    documents, skipped = [], []
    for path in _stdlib_files(root):
        document = _read(path, path.relative_to(root).as_posix())
        if document is None or len(document.text) > _STDLIB_MAX_BYTES:
            skipped.append(path.relative_to(root).as_posix())
        elif document.text:
            documents.append(document)
    if len(documents) < 2:
        raise DataError(f"the standard library has no sources in {root}; use a full Python, or corpus: files:GLOB")
    name = f"stdlib of Python {platform.python_version()}"
    return Corpus(name, "PSF-2.0", tuple(sorted(documents, key=lambda each: each.name)), tuple(sorted(skipped)))


def _stdlib_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [each for each in subfolders if each not in _STDLIB_EXCLUDED and not each.startswith("config-")]
        for file in files:
            if file.endswith(".py") and not file.startswith("_sysconfigdata"):
                yield Path(folder, file)


def _read_files(name: str, pattern: str) -> Corpus:
    absolute = str(Path(pattern).expanduser().absolute())
    matches = glob.glob(absolute, recursive=True)  # noqa: PTH207 (a trailing ** of Path.glob finds folders only)
    paths = sorted(Path(match) for match in matches if Path(match).is_file())
    if not paths:
        raise DataError(f"corpus is {name!r} and matches no file (looked for {absolute}); correct the glob")
    root = _fixed_folder(absolute)
    documents, skipped = [], []
    for path in paths:
        document = _read(path, path.relative_to(root).as_posix(), corpus=name)
        if document is None:
            skipped.append(path.relative_to(root).as_posix())
        elif document.text:
            documents.append(document)
    if not documents:
        raise DataError(f"corpus is {name!r} and its {len(paths)} files hold no UTF-8 text; choose text files")
    return Corpus(name, "the user's own", tuple(sorted(documents, key=lambda each: each.name)), tuple(sorted(skipped)))


def _fixed_folder(pattern: str) -> Path:
    """The deepest folder of a glob that has no wildcard."""
    parts = Path(pattern).parts
    fixed = next((index for index, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return Path(*parts[:fixed])


def _read(path: Path, name: str, *, corpus: str = "stdlib") -> Document | None:
    """The document in a file, or None when the file is not UTF-8."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"corpus is {corpus!r} and {path} cannot be read ({error.strerror}); make it readable or narrow the corpus"
        ) from error
    try:
        text.decode()
    except UnicodeDecodeError:
        return None
    return Document.of(name, text)


def _place(name: str) -> float:
    """Where a name's hash falls in [0, 1)."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) / 2**64


def _cut(document: Document) -> tuple[Document, Document]:
    """The first 95 % and the rest of a document, cut between two characters."""
    at = round(len(document.text) * (1 - HELD_OUT_SHARE))
    while at and document.text[at : at + 1] and document.text[at] & 0xC0 == 0x80:
        at -= 1
    if not 0 < at < len(document.text):
        raise DataError(f"{document.name} has {len(document.text)} bytes, too few to train on; choose more text")
    return (
        Document.of(f"{document.name}[:{at}]", document.text[:at]),
        Document.of(f"{document.name}[{at}:]", document.text[at:]),
    )
