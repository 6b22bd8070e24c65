"""The looped transformer: one class for every variant, its initial weights, its checkpoints.

model = LoopedTransformer(config, seed=0)      random weights
model = load_pretrained(folder)                a checkpoint
model(input_ids).logits                        (B, S, V) of the last loop
model(input_ids, every_loop=True)              also every loop's logits and hidden states, and the gates
"""

from workers.config.checkpoint_config import CheckpointError
from workers.models.checkpoint import load_pretrained, save_pretrained
from workers.models.initialisation import initialise
from workers.models.looped_transformer import LoopedTransformer, LoopOutput
from workers.models.sharing import share_weights

__all__ = [
    "CheckpointError",
    "LoopOutput",
    "LoopedTransformer",
    "initialise",
    "load_pretrained",
    "save_pretrained",
    "share_weights",
]
