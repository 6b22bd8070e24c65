"""Sliding-window attention against a softmax written out key by key."""

import warnings

import pytest
import torch
from torch import Tensor

from workers.models.window import attend_window, attend_window_flex


def written_out(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    output = torch.zeros_like(query)
    group = query.shape[1] // key.shape[1]
    for batch, head, slot in torch.cartesian_prod(*(torch.arange(size) for size in query.shape[:3])):
        seen = slice(max(0, int(slot) - window + 1), int(slot) + 1)
        keys, values = key[batch, head // group, seen], value[batch, head // group, seen]
        scores = keys @ query[batch, head, slot] / query.shape[-1] ** 0.5
        output[batch, head, slot] = scores.softmax(0) @ values
    return output


@pytest.fixture
def heads() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, count, 9, 16, generator=generator, dtype=torch.float64) for count in (4, 2, 2))


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 8, 9, 10])
def test_a_band_mask_is_the_window(heads: tuple[Tensor, Tensor, Tensor], window: int) -> None:
    torch.testing.assert_close(attend_window(*heads, window), written_out(*heads, window), atol=1e-12, rtol=0)


@pytest.mark.parametrize("window", [1, 4, 9])
def test_flex_attention_is_the_window(heads: tuple[Tensor, Tensor, Tensor], window: int) -> None:
    """The block mask that CUDA uses, run uncompiled here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "called without torch.compile"
        attended = attend_window_flex(*(part.float() for part in heads), window)
    torch.testing.assert_close(attended.double(), written_out(*heads, window), atol=1e-5, rtol=0)


def test_a_mask_first_built_in_inference_mode_serves_training(heads: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value = heads
    with torch.inference_mode():
        attend_window(query, key, value, 6)
    query = query.clone().requires_grad_()
    attend_window(query, key, value, 6).sum().backward()
    assert query.grad is not None
    assert query.grad.abs().sum() > 0
