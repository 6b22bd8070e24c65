"""Whether the files of a `files:GLOB` corpus are there, and whether they are enough text for the sequences asked for.

Only of use where the files lie: a study that a cluster runs may read files that this machine does not have.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.spec.problem import Path, Problem
from workers.config import DataConfig
from workers.config.mixture import parse_corpus

if TYPE_CHECKING:
    from orchestrator.spec.study_spec import StudySpec


def corpus_problems(spec: "StudySpec") -> Iterator[Problem]:
    """Corpora that cannot be read here or hold too little text."""
    for place, corpus in _corpora(spec):
        text = next((part.name for part in parse_corpus(corpus) if not part.is_task), "")
        if text.startswith("files:"):
            message = _misfit(text, _shortest(spec))
            if message is not None:
                yield Problem(place, message)


def _corpora(spec: "StudySpec") -> Iterator[tuple[Path, str]]:
    if "corpus" in spec.search:
        for index, corpus in enumerate(spec.search["corpus"].ends()):
            yield ("search", "corpus", "choices", index), corpus
    elif spec.data.corpus is not None:
        yield ("data", "corpus"), spec.data.corpus


def _shortest(spec: "StudySpec") -> int:
    """The shortest sequence that is trained on."""
    lengths = spec.search["seq_len"].ends() if "seq_len" in spec.search else [spec.data.seq_len or DataConfig().seq_len]
    return min(lengths)


def _misfit(corpus: str, seq_len: int) -> str | None:
    """Why a corpus is of no use; as bytes it has at least as many tokens as under any other vocabulary."""
    from workers.data import DataError  # numpy, which a study on the standard library can be read without
    from workers.data.corpus import read_corpus

    try:
        splits = read_corpus(corpus).split()
    except DataError as error:
        return str(error)
    training, held_out = (sum(len(document.text) + 1 for document in split) for split in splits)
    if training < 2 * seq_len or held_out <= seq_len:
        return (
            f"corpus is {corpus!r} and has {training:,} bytes to train on and {held_out:,} held out, too few for "
            f"sequences of seq_len {seq_len:,}; add text or shorten seq_len"
        )
    return None
