"""Sliding-window attention against a softmax written out key by key."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from workers.models.window import attend_window, attend_window_flex, attend_window_in_blocks, attend_window_sdpa


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


@pytest.mark.parametrize("window", [1, 5, 63, 64, 65, 100])
@pytest.mark.parametrize("length", [64, 65, 200, 320, 333])
def test_blocks_are_the_band(length: int, window: int) -> None:
    """Values and gradients, whole blocks or not, windows narrower and wider than a block."""
    generator = torch.Generator().manual_seed(length)
    parts = [torch.randn(2, count, length, 8, generator=generator, dtype=torch.float64) for count in (4, 2, 2)]
    weight = torch.randn(2, 4, length, 8, generator=generator, dtype=torch.float64)
    found = []
    for attend in (attend_window_in_blocks, attend_window_sdpa):
        leaves = [part.clone().requires_grad_() for part in parts]
        attended = attend(*leaves, window)
        (attended * weight).sum().backward()
        found.append((attended.detach(), *(leaf.grad for leaf in leaves)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=0)


def test_long_sequences_never_make_a_mask_of_the_whole_length() -> None:
    """The largest tensor made for a long sequence grows with its length, not with the square of it."""
    largest = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            largest[-1] = max([largest[-1], *(each.numel() for each in tree_leaves(out) if isinstance(each, Tensor))])
            return out

    for length in (1024, 4096):
        parts = [torch.randn(1, 1, length, 8, dtype=torch.float64) for _ in range(3)]
        largest.append(0)
        with Sizes():
            attend_window(*parts, 64)
    assert largest[1] <= 4 * largest[0]


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
