"""From a `DataConfig` to data that can be trained on.

Tasks are imported when one is asked for: they build on this package.
"""

from pathlib import Path

from workers.config import DataConfig
from workers.data.corpus import read_corpus
from workers.data.dataset import Dataset
from workers.data.shards import open_or_build, shards_fingerprint
from workers.data.text_dataset import TextDataset
from workers.fingerprint import fingerprint


def prepare(data: DataConfig, data_folder: Path) -> Dataset:
    """Open the data, building token shards under `data_folder` if they are not there yet.

    Raises a `DataError` for a corpus that cannot be read, is too small for `seq_len`, or whose shards are damaged, and
    for a task that its settings make impossible.
    """
    if data.is_task:
        from workers.tasks.phop import PhopDataset

        return PhopDataset(data)
    return TextDataset(open_or_build(read_corpus(data.corpus), data, data_folder), data)


def data_fingerprint(data: DataConfig) -> str:
    """Identity of the data by content, known before anything is built; part of a trial's identity.

    Reads and hashes a corpus, well under a second for ten megabytes. Raises a `DataError` when it cannot be read.
    """
    if data.is_task:
        from workers.tasks.phop import GENERATOR

        return fingerprint({"generator": GENERATOR, **data.normalised().to_dict()})
    return shards_fingerprint(read_corpus(data.corpus), data)
