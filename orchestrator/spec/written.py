"""How a study file's values and places are repeated to its author: as YAML writes them, short, on one line."""

_LONGEST = 80
"""Characters of a value that are repeated."""


class EntryError(ValueError):
    """A section is wrong at one of its keys."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def shown(value: object) -> str:
    """The value in YAML's words (`true`, `null`), else as Python writes it, cut when it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 1000:
        return "a number of more than 300 digits"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def dotted(path: tuple[str | int, ...]) -> str:
    """`search.lr.low`, `objectives[0].metric`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_word(part)}" if text else _word(part)
    return text or "the file"


def _word(key: str) -> str:
    return key if key.isprintable() and len(key) <= _LONGEST else shown(key)
