"""The code sets that a trial is scored on after training, made ready before it: a missing one costs no training."""

from pathlib import Path

from workers.code.problem import Problem, load_problems
from workers.code.reference import reference_bits
from workers.config import DataConfig
from workers.data.prepare import prepare_tokenizer
from workers.models import LoopedTransformer


class CodeReferences:
    """Reference solutions of `data.code_sets`; none when the data asks for none."""

    def __init__(self, data: DataConfig, data_folder: Path) -> None:
        """Raises a `DataError` when a set has not been fetched."""
        self._seq_len = data.seq_len
        self._problems: dict[str, tuple[Problem, ...]] = {}
        if data.code_sets != "none":
            self._problems = {name: load_problems(data_folder, name) for name in data.code_sets.split("+")}
            self._tokenizer = prepare_tokenizer(data, data_folder)

    def score(self, model: LoopedTransformer, batch_size: int) -> dict[str, float]:
        """`SET/bits_per_byte` of every set."""
        return {
            f"{name}/bits_per_byte": reference_bits(model, problems, self._tokenizer, self._seq_len, batch_size)
            for name, problems in self._problems.items()
        }
