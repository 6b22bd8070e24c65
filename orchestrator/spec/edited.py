"""Changing one place in the text of a study file, comments and layout kept."""

import io
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from orchestrator.errors import SpecError
from orchestrator.spec.written_file import WIDTH, in_one_line


def edited(text: str, path: Sequence[str], value: Any) -> str:
    """The text with `value` at a path of keys; None takes the key away. A `SpecError` when the text is no mapping."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        root = yaml.load(text) if text.strip() else CommentedMap()
    except YAMLError as error:
        raise SpecError(f"the text is no YAML ({str(error).splitlines()[0]}); mend it first") from error
    if not isinstance(root, CommentedMap):
        raise SpecError("the text is no study file; a study file is keys and values, such as 'name: first-study'")
    _set(root, path, value)
    written = io.StringIO()
    yaml.dump(root, written)
    return written.getvalue()


def _set(root: CommentedMap, path: Sequence[str], value: Any) -> None:
    *above, key = path
    node = root
    for name in above:
        below = node.get(name)
        if not isinstance(below, CommentedMap):
            if value is None:
                return
            below = node[name] = CommentedMap()
            below.fa.set_flow_style()
        node = below
    if value is None:
        node.pop(key, None)
        return
    node[key] = _rows(value) if node is root and isinstance(value, list) else in_one_line(value)


def _rows(items: Sequence[Any]) -> Any:
    """A list at the top of the file: one line per item when the items are keys and values."""
    rows = CommentedSeq(in_one_line(item) for item in items)
    if not any(isinstance(item, dict) for item in items):
        rows.fa.set_flow_style()
    return rows
