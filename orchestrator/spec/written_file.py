"""Plain data as the text of a study file, for people to edit."""

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

WIDTH = 110
"""Of a line."""
_ORDER = ("name", "question", "model", "data", "train", "search", "seeds", "replicate", "objectives", "constraints")
"""The order in which a study file tells its story; the rest follows as it comes."""


def to_text(plain: Mapping[str, Any]) -> str:
    """A study file that reads back to `plain`: sections below each other, what they hold in one line where short."""
    root = CommentedMap()
    for name in sorted(plain, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)):
        root[name] = _block(plain[name])
    yaml = YAML()
    yaml.width = WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump(root, text)
    return text.getvalue()


def _block(value: Any) -> Any:
    """The top of a section: entries that are keys and values stand on lines of their own."""
    if isinstance(value, Mapping):
        block = CommentedMap((name, in_one_line(entry)) for name, entry in value.items())
        if not any(isinstance(entry, Mapping) for entry in value.values()) and len(str(value)) < WIDTH:
            block.fa.set_flow_style()
        return block
    if isinstance(value, list | tuple):
        items = CommentedSeq(in_one_line(entry) for entry in value)
        if not any(isinstance(entry, Mapping) for entry in value):
            items.fa.set_flow_style()
        return items
    return value


def in_one_line(value: Any) -> Any:
    """YAML's flow style for this value and everything below."""
    if isinstance(value, Mapping):
        line = CommentedMap((name, in_one_line(entry)) for name, entry in value.items())
        line.fa.set_flow_style()
        return line
    if isinstance(value, list | tuple):
        items = CommentedSeq(in_one_line(entry) for entry in value)
        items.fa.set_flow_style()
        return items
    return value
