"""What a new study can start from: the examples beside the program, a study of this home, or a small one of our own."""

from collections.abc import Sequence
from pathlib import Path

import dashboard
from orchestrator.home import Home
from orchestrator.spec.written_file import to_text
from orchestrator.studies import read_spec

_EXAMPLES = Path(dashboard.__file__).parents[1] / "experiments"
_OWN = """\
name: first-study
question: Which loop count pays off for a tiny model?
model: {variant: plt, d_model: 64, num_layers: 1, num_heads: 4}
data: {corpus: phop, hops: 2, alphabet: 4, seq_len: 64}
train: {tokens: 512k, batch_size: 16, lr: 4e-3}
search:
  num_loops: {choices: [1, 2, 3]}
objectives:
  - {metric: tasks/phop/accuracy, direction: maximize}
  - {metric: decode/latency_ratio, direction: minimize}
budget: {configurations: 3}
benchmark: {model: {d_model: 512, num_layers: 8}, batch_sizes: [1], context: 512, generate: 16}
"""


def examples() -> dict[str, Path]:
    """Study files that come with the program, by name, the quickstart first; none where only the packages are."""
    files = sorted(_EXAMPLES.glob("*.yaml"), key=lambda file: (file.stem != "quickstart", file.stem))
    return {file.stem: file for file in files}


def example_text(name: str) -> str:
    """An example's text; our own small study's when there is none of this name."""
    file = examples().get(name)
    return _OWN if file is None else file.read_text(encoding="utf-8")


def clone_text(home: Home, study: str, taken: Sequence[str]) -> str:
    """The file of a study of this home, under the first name that is free; a `PltError` when there is no such study."""
    spec, _ = read_spec(home, study)
    return to_text({**spec.to_plain(), "name": free_name(study, taken)})


def free_name(name: str, taken: Sequence[str]) -> str:
    """`NAME`, or with the first number behind it that no study has."""
    stem, _, number = name.rpartition("-")
    stem = stem if stem and number.isdigit() else name
    candidates = (f"{stem}-{count}" for count in range(2, len(taken) + 3))
    return name if name not in taken else next(one for one in candidates if one not in taken)
