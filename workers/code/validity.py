"""Syntactic validity: which share of what a model writes is Python at all."""

import ast
from collections.abc import Iterable

_LONGEST = 100_000
"""Characters of a program that are parsed: a huge one could exhaust the parser, and is no sensible answer."""


def is_valid(program: str) -> bool:
    """Whether it parses; nothing of it is run."""
    if len(program) > _LONGEST:
        return False
    try:
        ast.parse(program)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def valid_share(programs: Iterable[str]) -> float:
    """Share of programs that parse."""
    found = [is_valid(program) for program in programs]
    return sum(found) / len(found)
