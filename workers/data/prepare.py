"""From a `DataConfig` to data that can be trained on.

Tasks are imported when one is asked for: they build on this package.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from workers.config import DataConfig
from workers.config.task_shapes import TASKS
from workers.data.corpus import read_corpus
from workers.data.dataset import Dataset
from workers.data.errors import DataError
from workers.data.mixture import Mixture
from workers.data.shards import open_or_build, shards_fingerprint
from workers.data.text_dataset import TextDataset
from workers.data.tokenizer import Tokenizer, read_tokenizer
from workers.fingerprint import fingerprint

if TYPE_CHECKING:
    from workers.tasks.task_dataset import TaskDataset


def prepare(data: DataConfig, data_folder: Path) -> Dataset:
    """Open the data, building token shards under `data_folder` if they are not there yet.

    Raises a `DataError` for a corpus that cannot be read, is too small for `seq_len`, or whose shards are damaged, and
    for a task that its settings make impossible.
    """
    if not data.is_mixture:
        return _source(data, data_folder)
    first_id, sources = data.text_vocab_size, []
    for part in data.parts:
        own = data.of(part)
        if part.is_task:
            sources.append((_source(own, data_folder), part.weight, first_id))
            first_id += TASKS[part.name].vocab_size(own)
        else:
            sources.append((_source(own, data_folder), part.weight, 0))
    return Mixture(sources, name=data.corpus, vocab_size=data.vocab_size, seq_len=data.seq_len)


def prepare_tokenizer(data: DataConfig, data_folder: Path) -> Tokenizer:
    """The tokenizer of the text that `data` has; its ids are the model's first ones."""
    if data.text is None:
        raise DataError(f"corpus is {data.corpus!r}, which has no text and so no tokenizer; add a text to it")
    shards = open_or_build(read_corpus(data.text), data, data_folder)
    return read_tokenizer((shards.folder / "tokenizer.json").read_text(encoding="utf-8"), data.text_vocab_size)


def data_fingerprint(data: DataConfig) -> str:
    """Identity of the data by content, known before anything is built; part of a trial's identity.

    Reads and hashes a corpus, well under a second for ten megabytes. Raises a `DataError` when it cannot be read.
    """
    if data.is_mixture:
        return fingerprint([[part.weight, data_fingerprint(data.of(part))] for part in data.parts])
    if data.is_task:
        from workers.tasks.registry import make_task

        return fingerprint({"generator": make_task(data).generator, **data.normalised().to_dict()})
    return shards_fingerprint(read_corpus(data.corpus), data)


def _source(data: DataConfig, data_folder: Path) -> "TextDataset | TaskDataset":
    """One part by itself."""
    if data.is_task:
        from workers.tasks.registry import make_task
        from workers.tasks.task_dataset import TaskDataset

        return TaskDataset(make_task(data), data)
    return TextDataset(open_or_build(read_corpus(data.corpus), data, data_folder), data)
