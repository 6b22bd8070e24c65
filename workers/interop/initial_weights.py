"""The weights that fine-tuning starts from: a checkpoint's, in a model whose loops may differ.

The layers do not know how often they are run, so loop count, window, CLP and sharing may all change. Gates are taken
where the checkpoint has them and they read the same input, turned round where they weigh the other branch, and are
otherwise new.
"""

from pathlib import Path

import torch
from torch import Tensor

from workers.interop.errors import InteropError
from workers.interop.names import is_gate
from workers.interop.reading import load_model
from workers.models import LoopedTransformer


def take_weights(model: LoopedTransformer, folder: Path) -> str:
    """Copy the weights in `folder` into `model`, converted to its type; what was taken, in a few words.

    An `InteropError` names the first tensor that the two do not share.
    """
    source = load_model(folder)
    theirs = source.state_dict()
    keeps_gates = source.config.has_gate and source.config.gate_input == model.config.gate_input
    turned = source.config.gate_polarity != model.config.gate_polarity
    new = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gate = is_gate(name)
            if gate and not keeps_gates:
                new += 1
                continue
            tensor = _find(folder, theirs, name, parameter)
            parameter.copy_(-tensor if gate and turned and "gate_norm" not in name else tensor)
    return f"{len(list(model.parameters())) - new} tensors taken, {new} gate tensors new"


def _find(folder: Path, theirs: dict[str, Tensor], name: str, parameter: Tensor) -> Tensor:
    if name not in theirs:
        raise InteropError(f"{folder} lacks {name}, shape {tuple(parameter.shape)}, that the study's model has")
    if theirs[name].shape != parameter.shape:
        found = tuple(theirs[name].shape)
        raise InteropError(f"{folder}: {name} has shape {found}; the study's model asks for {tuple(parameter.shape)}")
    return theirs[name]
