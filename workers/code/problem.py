"""Programming problems with reference solutions and tests: HumanEval (Chen et al. 2021) and MBPP (Austin et al. 2021).

HumanEval's prompt is a function's head with its docstring; the answer goes on from there. MBPP's is a docstring with
the task and its three asserts; the answer is the whole function. Line ends are made `\\n`.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.code.wheel import read_code_file

_HUMANEVAL_STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
_MBPP_STOPS = ("\nclass", "\nassert", '\n"""', "\nprint", "\nif", "\n#")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem."""

    name: str
    prompt: str
    solution: str
    """The reference, to stand right after the prompt."""
    tests: str
    """Code that raises when a program before it is wrong."""
    asserts: tuple[str, ...]
    """MBPP: `assert f(x) == y`, one each."""
    stops: tuple[str, ...]
    """Text at which a written answer ends."""
    prompt_is_code: bool
    """Whether the answer needs the prompt to be a program."""

    def program(self, answer: str) -> str:
        """The answer with everything that it needs, and its tests."""
        return (self.prompt if self.prompt_is_code else "") + answer + "\n" + self.tests


def load_problems(data_folder: Path, name: str) -> tuple[Problem, ...]:
    """The problems of `humaneval` or `mbpp`; a `DataError` when they have not been fetched."""
    lines = gzip.decompress(read_code_file(data_folder, name)).decode().splitlines()
    return tuple(_READERS[name](json.loads(line)) for line in lines)


def _humaneval(entry: Mapping[str, Any]) -> Problem:
    return Problem(
        name=entry["task_id"],
        prompt=entry["prompt"],
        solution=entry["canonical_solution"],
        tests=f"{entry['test']}\ncheck({entry['entry_point']})\n",
        asserts=(),
        stops=_HUMANEVAL_STOPS,
        prompt_is_code=True,
    )


def _mbpp(entry: Mapping[str, Any]) -> Problem:
    document = entry["doc"]
    asserts = tuple(document["test_list"])
    return Problem(
        name=f"MBPP/{document['task_id']}",
        prompt='"""\n' + "\n".join((document["text"], *asserts)) + '\n"""\n',
        solution=document["code"].replace("\r\n", "\n"),
        tests="\n".join((document["test_setup_code"].replace("\r\n", "\n"), *asserts)) + "\n",
        asserts=asserts,
        stops=_MBPP_STOPS,
        prompt_is_code=False,
    )


_READERS = {"humaneval": _humaneval, "mbpp": _mbpp}
