"""Stopping weak trials early, with one objective or several: pure functions of what trials have reported."""

from orchestrator.pruning.pruner import Pruner, make_pruner
from orchestrator.pruning.rung import RungEntry

__all__ = ["Pruner", "RungEntry", "make_pruner"]
