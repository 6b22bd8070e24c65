"""Is a decoder right? Its logits, prefilled and then step by step, against the model's training form."""

import torch

from workers.decoding import Decoder
from workers.models import LoopedTransformer

CHECKED_STEPS = 8
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""Largest relative error, |decoded - trained| / |trained| in Euclidean norm over the checked logits.

Rounding alone gives about 1e-6 and 5e-3.
"""


def check_decoder(model: LoopedTransformer, decoder: Decoder, ids: torch.Tensor) -> float:
    """The relative error of the last `CHECKED_STEPS` slots of `ids` (B, S), decoded one by one after a prefill.

    Leaves the decoder empty. A `RuntimeError` says that decoding and training form disagree.
    """
    decoder.reset()
    prompt = max(1, ids.shape[1] - CHECKED_STEPS)
    decoder.prefill(ids[:, :prompt], last_only=True)
    decoded = torch.stack([decoder.step(column) for column in ids[:, prompt:].unbind(1)], 1).float()
    decoder.reset()
    with torch.inference_mode():
        trained = model(ids).logits[:, prompt:].float()
    error = float((decoded - trained).norm() / trained.norm())
    limit = TOLERANCE[model.model.norm.weight.dtype]
    if not error <= limit:
        raise RuntimeError(
            f"decoding and training form disagree: relative error of the logits {error:.2g}, limit {limit:.2g}; "
            "no latency is reported for a decoder that computes something else"
        )
    return error
