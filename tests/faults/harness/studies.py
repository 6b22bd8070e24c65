"""The studies that are run, broken and continued: tiny p-hop models that are really trained, about a second each."""

from dataclasses import dataclass
from pathlib import Path

_COMMON = """\
name: {name}
model: {{variant: plt, d_model: 16, num_layers: 1, num_heads: 2, num_kv_heads: 2, window: 8}}
data: {{corpus: phop, seq_len: 32, eval_sequences: 16}}
train: {{tokens: 12k, batch_size: 8, precision: float32, compile: off, evaluations: 4}}
search:
  num_loops: {{choices: [1, 2]}}
  lr: {{choices: [1e-3, 3e-3, 1e-2]}}
seeds: [0, 1]
replicate: all
sampler: {{name: grid}}
budget: {{configurations: 4}}
resources: {{train: {{cpus: 1, gpus: 0}}}}
retry: {{worker_lease: 6s}}
"""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One question, and how much of it there is to find out."""

    text: str
    configurations: int
    """The budget."""

    def write(self, folder: Path, name: str) -> Path:
        """The study file, under this name."""
        path = folder / "study.yaml"
        path.write_text(self.text.format(name=name), encoding="utf-8")
        return path


SCENARIOS = {
    "plain": Scenario(
        text=_COMMON + "objectives: [{{metric: val/loss, direction: minimize}}, "
        "{{metric: train/flops, direction: minimize}}]\n",
        configurations=4,
    ),
    "pruned": Scenario(
        text=_COMMON + "objectives: [{{metric: val/loss, direction: minimize}}]\n"
        "pruner: {{name: moasha, reduction_factor: 2, min_tokens: 3k}}\n",
        configurations=4,
    ),
}
