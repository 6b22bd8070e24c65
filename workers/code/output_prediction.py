"""MBPP output prediction, in the manner of CRUXEval-O (Gu et al. 2024): what does this call return?

The prompt is the reference solution and an assert up to its `==`; the answer is the literal after it, right when it has
the same value and type. Small models score near nothing: compare with `majority`, the share of the most frequent value.
"""

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from workers.code.problem import Problem
from workers.code.writer import Writer

_LONGEST = 2_000
"""Characters of a written literal that are looked at: a deeply nested one could exhaust the parser."""


@dataclass(frozen=True)
class Prediction:
    """One question."""

    prompt: str
    expected: str
    """A literal, as the data set writes it."""


def predictions_of(problems: Sequence[Problem]) -> list[Prediction]:
    """A question for every assert that compares with a literal."""
    found = []
    for problem in problems:
        for text in problem.asserts:
            compared = _compared(text)
            if compared is not None:
                found.append(Prediction(f"{problem.solution}\n\nassert {compared[0]} ==", compared[1]))
    return found


def predict_outputs(writer: Writer, questions: Sequence[Prediction]) -> dict[str, float]:
    """Exact match on the value, and the majority baseline."""
    right = sum(same_value(writer.write(each.prompt, ("\n",))[0], each.expected) for each in questions)
    most = Counter(repr(ast.literal_eval(each.expected)) for each in questions).most_common(1)[0][1]
    return {
        "mbpp/output_prediction/accuracy": right / len(questions),
        "mbpp/output_prediction/majority": most / len(questions),
    }


def same_value(written: str, expected: str) -> bool:
    """Whether a written literal has the value, and the type, of the expected one."""
    try:
        value = ast.literal_eval(written.strip()[:_LONGEST])
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return False
    return repr(value) == repr(ast.literal_eval(expected))


def _compared(text: str) -> tuple[str, str] | None:
    """Both sides of `assert A == LITERAL`, or None when it is something else."""
    statement = ast.parse(text.strip()).body[0]
    if not isinstance(statement, ast.Assert) or not isinstance(statement.test, ast.Compare):
        return None
    compare = statement.test
    if len(compare.ops) != 1 or not isinstance(compare.ops[0], ast.Eq):
        return None
    expected = ast.unparse(compare.comparators[0])
    try:
        ast.literal_eval(expected)
    except ValueError:
        return None
    return ast.unparse(compare.left), expected
