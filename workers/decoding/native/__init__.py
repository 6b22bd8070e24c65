"""Decode steps on the CPU by compiled code: all layers of a step in one call.

`NativeWeights` packs a model, or says with `NativeUnavailableError` why compiled steps cannot serve it here;
`NativePass` takes the steps.
"""

from workers.decoding.native.library import NativeUnavailableError, engine
from workers.decoding.native.slot_pass import NativePass
from workers.decoding.native.weights import NativeWeights

__all__ = ["NativePass", "NativeUnavailableError", "NativeWeights", "engine"]
