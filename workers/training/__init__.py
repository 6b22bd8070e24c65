"""Training one model: a generator of metric reports that can be stopped, saved and resumed exactly."""

from workers.training.divergence import DivergenceError
from workers.training.plan import Plan, halved_micro_batch, untimed_plan
from workers.training.trainer import Trainer
from workers.training.tuning import choose_plan

__all__ = ["DivergenceError", "Plan", "Trainer", "choose_plan", "halved_micro_batch", "untimed_plan"]
