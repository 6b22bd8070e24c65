"""Data for training and evaluation: text corpora as token shards, and generated tasks, behind one interface.

`prepare` opens or builds what a `DataConfig` names; `data_fingerprint` says what it is before anything is built. Numpy
only, so the driver can ask for fingerprints without torch.
"""

from workers.data.dataset import IGNORED, Batch, Dataset, EvaluationSet
from workers.data.errors import DataError
from workers.data.prepare import data_fingerprint, prepare

__all__ = ["IGNORED", "Batch", "DataError", "Dataset", "EvaluationSet", "data_fingerprint", "prepare"]
