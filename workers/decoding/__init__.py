"""Decoding with caches: one pass per token for models with cross-loop parallelism.

decoder = Decoder(model, batch_size, max_length)
decoder.prefill(ids)        (B, T) -> logits (B, T, V), in any chunks
decoder.step(ids)           (B,)   -> logits (B, V)
decoder.kv_bytes()          per sequence, counted from the tensors
generate(model, prompt_ids, max_new_tokens)
"""

from workers.decoding.decoder import Decoder
from workers.decoding.generation import generate
from workers.decoding.weights import DecoderWeights

__all__ = ["Decoder", "DecoderWeights", "generate"]
