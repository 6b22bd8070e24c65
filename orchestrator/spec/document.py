"""A study file's text as plain data, with the line of every key.

YAML 1.2: `1e-4` is a number, `on` a word. Nothing is ever constructed from a tag. `base: other.yaml` takes that file,
relative to this one, and overrides it: sections are merged key by key, a searched knob is replaced as a whole, and
`null` takes a key of the base away.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from orchestrator.errors import SpecError
from orchestrator.spec.problem import Path, Problem, spec_error
from orchestrator.spec.written import dotted, shown

_LARGEST, _DEEPEST = 10_000, 20
"""Values in one file and levels of nesting; aliases of aliases grow without bound."""
_PLAIN_TAGS = (None, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass
class Document:
    """Plain data and where it was written."""

    file: FilePath
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Path, str] = field(default_factory=dict)
    """`file:line` of every key and list item."""

    def locate(self, path: Path) -> str:
        """`file:line` of a place, of the nearest place around it that is written down, or of the first line."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return f"{self.file}:1"


def read_document(file: FilePath, above: tuple[FilePath, ...] = (), text: str | None = None) -> Document:
    """Read one file and the files it is based on; a `SpecError` names the file and the line.

    With `text`, that is read as if it stood in the file.
    """
    if file.resolve() in above:
        raise SpecError(f"{file}:1: base: the files are based on each other; let one of them stand alone")
    document = _Reader(file, text).read()
    base = document.data.pop("base", None)
    if base is None:
        return document
    place = document.locate(("base",))
    if not isinstance(base, str):
        raise SpecError(f"{place}: base is {shown(base)}; it must be the path of a study file, relative to this one")
    if not (file.parent / base).is_file():
        raise SpecError(f"{place}: base is {base!r}, and {file.parent / base} is not a file")
    below = read_document(file.parent / base, (*above, file.resolve()))
    return Document(
        file=file,
        data=_merge(below.data, document.data, replace_whole=False),
        lines={**below.lines, **document.lines},
    )


def _merge(below: Mapping[str, Any], above: Mapping[str, Any], *, replace_whole: bool) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if value is None and key in merged:
            del merged[key]
        elif isinstance(value, Mapping) and isinstance(under, Mapping) and not replace_whole:
            merged[key] = _merge(under, value, replace_whole=key == "search")
        else:
            merged[key] = value
    return merged


class _Reader:
    """Turns one file into plain data and collects what YAML allows but a study file does not."""

    def __init__(self, file: FilePath, text: str | None) -> None:
        self._document, self._text = Document(file), text
        self._problems: list[Problem] = []
        self._count = 0

    def read(self) -> Document:
        root = self._load()
        if not isinstance(root, CommentedMap):
            raise SpecError(f"{self._document.file}:1: a study file is keys and values, such as 'name: first-study'")
        self._document.data = self._plain(root, ())
        if self._problems:
            raise spec_error(self._problems, self._document.locate)
        return self._document

    def _load(self) -> object:
        file = self._document.file
        try:
            text = file.read_text(encoding="utf-8") if self._text is None else self._text
            return YAML(typ="rt").load(text)
        except OSError as error:
            raise SpecError(f"{file}: cannot be read ({error.strerror}); give the path of a study file") from error
        except UnicodeDecodeError as error:
            raise SpecError(f"{file}: is not UTF-8 text (byte {error.start}); give the path of a study file") from error
        except MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise SpecError(f"{file}:{line}: {error.problem or error.context}") from error
        except YAMLError as error:
            raise SpecError(f"{file}:1: {str(error).splitlines()[0]}") from error
        except (RecursionError, AttributeError, ValueError, TypeError) as error:  # what ruamel lets through
            raise SpecError(
                f"{file}:1: is no plain YAML ({type(error).__name__}: {str(error)[:100]}); write the study out plainly"
            ) from error

    def _plain(self, node: object, path: Path) -> Any:
        self._count += 1
        if self._count > _LARGEST or len(path) > _DEEPEST:
            place = self._document.locate(path)
            raise SpecError(f"{place}: more than {_LARGEST:,} values or {_DEEPEST} levels; write the study out plainly")
        if isinstance(node, CommentedMap):
            return self._mapping(node, path)
        if isinstance(node, CommentedSeq):
            return self._sequence(node, path)
        if node is None or isinstance(node, bool):
            return node
        if isinstance(node, str):
            return str(node)
        if isinstance(node, int):
            return int(node)
        if isinstance(node, float):
            if not math.isfinite(node):
                self._refuse(path, f"{dotted(path)} is .{node}; a study file holds finite numbers only")
            return float(node)
        self._refuse(path, f"{dotted(path)} is {node}, of a kind that no study file holds; write text in quotes")
        return None

    def _mapping(self, node: CommentedMap, path: Path) -> dict[str, Any]:
        self._refuse_tag(node, path)
        plain: dict[str, Any] = {}
        for key, value in node.items():
            inner = (*path, str(key))
            self._document.lines[inner] = self._line(
                node.lc.key(key)[0] if key in (node.lc.data or {}) else node.lc.line
            )
            if not isinstance(key, str):
                self._refuse(inner, f"key {shown(key)} in {dotted(path)} is no word; put it in quotes")
            plain[str(key)] = self._plain(value, inner)
        return plain

    def _sequence(self, node: CommentedSeq, path: Path) -> list[Any]:
        self._refuse_tag(node, path)
        for index in range(len(node)):
            self._document.lines[(*path, index)] = self._line(node.lc.item(index)[0])
        return [self._plain(value, (*path, index)) for index, value in enumerate(node)]

    def _line(self, line: int) -> str:
        return f"{self._document.file}:{line + 1}"

    def _refuse_tag(self, node: CommentedMap | CommentedSeq, path: Path) -> None:
        if node.tag.value not in _PLAIN_TAGS:
            self._refuse(path, f"{dotted(path)} has the tag {node.tag.value}; a study file has no tags")

    def _refuse(self, path: Path, text: str) -> None:
        self._problems.append(Problem(path, text))
