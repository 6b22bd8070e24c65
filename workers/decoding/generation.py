"""Text generation by repeated decode steps: greedy, or sampled with a seed."""

import torch
from torch import Tensor

from workers.decoding.decoder import Decoder
from workers.models import LoopedTransformer


def generate(
    model: LoopedTransformer,
    prompt_ids: Tensor,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Continue `prompt_ids` (B, T), T >= 1, by `max_new_tokens`; the new token ids (B, max_new_tokens).

    Temperature 0 takes the likeliest token; otherwise logits are divided by it, cut to the `top_k` largest if given,
    and sampled, the same way for the same seed on one kind of device. A `ValueError` says which argument cannot be.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be 1 or more")
    if temperature < 0:
        raise ValueError(f"temperature is {temperature}; it must be 0 (greedy) or more")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k is {top_k}; it must be 1 or more, or None for all tokens")
    batch, prompt = prompt_ids.shape
    limit = model.config.max_position_embeddings
    if prompt + max_new_tokens > limit:
        raise ValueError(
            f"max_new_tokens is {max_new_tokens}; after a prompt of {prompt} the model takes {limit - prompt} more "
            f"(max_position_embeddings is {limit})"
        )
    decoder = Decoder(model, batch, prompt + max_new_tokens)
    generator = torch.Generator(prompt_ids.device).manual_seed(seed)
    logits = decoder.prefill(prompt_ids, last_only=True)[:, 0]
    tokens = [choose(logits, temperature, top_k, generator)]
    while len(tokens) < max_new_tokens:
        tokens.append(choose(decoder.step(tokens[-1]), temperature, top_k, generator))
    return torch.stack(tokens, 1)


def choose(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    """The next token ids (B,) from logits (B, V)."""
    if temperature == 0.0:
        return logits.argmax(-1)
    scaled = logits.float() / temperature
    if top_k is not None and top_k < scaled.shape[-1]:
        smallest_kept = scaled.topk(top_k).values[:, -1:]
        scaled = scaled.masked_fill(scaled < smallest_kept, float("-inf"))
    return torch.multinomial(scaled.softmax(-1), 1, generator=generator)[:, 0]
