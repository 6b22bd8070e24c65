"""Decode steps on the CPU by compiled code: all layers of a step in one call.

`NativeWeights` packs a model, or says with `NativeUnavailableError` why compiled steps cannot serve it here;
`NativeStep` takes the steps.
"""

from workers.decoding.native.library import NativeUnavailableError, engine, read_memory
from workers.decoding.native.step import NativeStep
from workers.decoding.native.weights import NativeWeights

__all__ = ["NativeStep", "NativeUnavailableError", "NativeWeights", "engine", "read_memory"]
