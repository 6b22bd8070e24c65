"""Line completion on held-out text: given what comes before, which line comes next?

Questions are evenly spread over the held-out tokens: half a window of context that ends where a line ends, then a line
of at least four characters that are not spaces. Exact match, indentation included, of greedy decoding. `majority` is
the share of the most frequent of these lines.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from workers.code.writer import Writer

_SHORTEST = 4


@dataclass(frozen=True)
class Line:
    """One question."""

    before: str
    line: str
    """Without its line end."""


def lines_of(text: bytes, context: int, count: int) -> list[Line]:
    """Up to `count` questions with up to `context` bytes before them."""
    starts = [at + 1 for at, byte in enumerate(text) if byte == 0x0A and at + 1 >= context]
    found = []
    for start in starts:
        end = text.find(b"\n", start)
        line = text[start:end]
        if end >= 0 and len(line.strip()) >= _SHORTEST:
            before = text[start - context : start].decode(errors="ignore")
            found.append(Line(before, line.decode(errors="replace")))
    step = max(1, len(found) // max(1, count))
    return found[::step][:count]


def complete_lines(writer: Writer, questions: Sequence[Line]) -> dict[str, float]:
    """Share of lines that greedy decoding writes exactly, and the majority baseline."""
    right = sum(writer.write(each.before, ("\n",))[0] == each.line for each in questions)
    most = Counter(each.line for each in questions).most_common(1)[0][1]
    return {"lines/accuracy": right / len(questions), "lines/majority": most / len(questions)}
