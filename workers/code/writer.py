"""Lets a model go on from a text: token by token with real caches, greedily or sampled, until a stop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from workers.data.tokenizer import Tokenizer
from workers.decoding.generation import generate
from workers.models import LoopedTransformer


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A model with its tokenizer. Prompts that leave no room for the answer lose their beginnings."""

    model: LoopedTransformer
    tokenizer: Tokenizer
    """Its ids must be the model's first ones."""
    temperature: float = 0.0
    """0 is greedy."""
    max_new_tokens: int = 128

    def write(self, prompt: str, stops: Sequence[str], *, samples: int = 1, seed: int = 0) -> list[str]:
        """So many continuations of a prompt, each cut before the first stop or the end of the document."""
        separator = self.tokenizer.vocab_size - 1
        limit = self.model.config.max_position_embeddings
        new = max(1, min(self.max_new_tokens, limit // 2))
        ids = np.concatenate([[separator], self.tokenizer.encode([prompt.encode()])[0]])[-(limit - new) :]
        device = next(self.model.parameters()).device
        batch = torch.from_numpy(np.repeat(ids[None], samples, axis=0)).to(device)
        with torch.inference_mode():
            written = generate(self.model, batch, new, temperature=self.temperature, seed=seed).cpu().numpy()
        return [self._text(row, stops) for row in written]

    def _text(self, ids: np.ndarray, stops: Sequence[str]) -> str:
        ends = np.flatnonzero(ids >= self.tokenizer.vocab_size - 1)
        text = self.tokenizer.decode(ids[: ends[0]] if len(ends) else ids).decode(errors="replace")
        return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]
