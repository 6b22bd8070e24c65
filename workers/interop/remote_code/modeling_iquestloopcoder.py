"""Looped transformers without cross-loop parallelism, under IQuest-Coder-V1-Loop's names, for transformers.

The computation is `modeling_iquestpltcoder`'s; only the gates' place differs. vLLM, SGLang and mlx-lm have their own.
"""

from torch import nn

from .configuration_iquestloopcoder import IQuestLoopCoderConfig
from .configuration_iquestpltcoder import IQuestPLTCoderConfig  # noqa: F401 (4.57 copies only what this file imports)
from .modeling_iquestpltcoder import Gate, IQuestPLTCoderForCausalLM, IQuestPLTCoderModel


class IQuestLoopCoderModel(IQuestPLTCoderModel):
    """Embedding, layers, final norm, and the gates beside the layers."""

    config_class = IQuestLoopCoderConfig

    def add_gates(self, config: IQuestLoopCoderConfig) -> None:
        """One gate per layer, which all later loops share."""
        self.gate_projections = nn.ModuleList(Gate(config, hidden=False) for _ in self.layers)

    def gate_of(self, index: int) -> Gate:
        """The gate of a layer."""
        return self.gate_projections[index]


class IQuestLoopCoderForCausalLM(IQuestPLTCoderForCausalLM):
    """The model with its head."""

    config_class = IQuestLoopCoderConfig
    model_class = IQuestLoopCoderModel
