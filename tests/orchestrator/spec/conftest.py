"""The study file that shows the whole vocabulary."""

import pytest

_EXAMPLE = """\
name: plt-loop-count
question: How many loops pay for themselves at this size?      # shown in the dashboard and the lab log
model:      {variant: plt, d_model: 256, num_layers: 4, num_heads: 4, num_kv_heads: 2, vocab: bytes}
data:       {corpus: stdlib, seq_len: 256}
train:      {tokens: 4M, batch_size: 16, lr: 3e-3, precision: auto, compile: auto}
search:
  num_loops:  {choices: [1, 2, 3, 4]}
  window:     {choices: [8, 16, 64], when: {num_loops: ">1", local: swa}}     # conditional
  gate_mode:  {choices: [learned, 0.5], when: {num_loops: ">1", local: swa}}
  lr:         {low: 1e-3, high: 1e-2, log: true}
seeds: [0, 1, 2]                      # replicates of one configuration, never search dimensions
objectives:
  - {metric: val/bits_per_byte, direction: minimize}
  - {metric: decode/ms_per_token, direction: minimize}
  - {metric: kv/bytes_per_sequence, direction: minimize}
constraints: ["decode/ms_per_token <= 12", "kv/bytes_per_sequence <= 10MB"]
sampler:    {name: auto, seed: 0}     # auto | tpe | nsga2 | gp | random | grid
pruner:     {name: moasha, reduction_factor: 3, min_tokens: 200k}
budget:     {configurations: 24, wall_clock: 2h, device_hours: 8, max_failure_rate: 0.2}
resources:  {train: {gpus: 0.25, cpus: 2}, benchmark: {gpus: 1, exclusive: true}, workers_per_trial: 1}
benchmark:  {model: {d_model: 1024, num_layers: 8}, batch_sizes: [1, 8], context: 512, generate: 128}
retry:      {max_attempts: 3, trial_timeout: 30m}
"""


@pytest.fixture(scope="session")
def example() -> str:
    return _EXAMPLE
