"""Frozen, plain-data configurations. Importing them costs milliseconds: no torch, no numpy."""

from workers.config.benchmark_config import BenchmarkConfig
from workers.config.data_config import DataConfig
from workers.config.model_config import ModelConfig
from workers.config.train_config import TrainConfig
from workers.config.variants import VARIANTS, variant_knobs

__all__ = ["VARIANTS", "BenchmarkConfig", "DataConfig", "ModelConfig", "TrainConfig", "variant_knobs"]
