"""Packed products against plain ones."""

import pytest
import torch
from torch.nn.functional import linear

from workers.decoding.linear import PackedLinear, can_pack


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 70])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_a_packed_product_equals_the_plain_one(rows: int, dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(48, 33, generator=generator).to(dtype)
    x = torch.randn(2, rows, 33, generator=generator).to(dtype)
    exact = linear(x.double(), weight.double())
    with torch.inference_mode():
        for packed_for in (1, rows):
            product = PackedLinear(weight, packed_for)(x)
            assert product.dtype == dtype
            assert ((product.double() - exact).norm() / exact.norm()).item() < tolerance


def test_float32_is_packed_where_onednn_is() -> None:
    assert can_pack(torch.zeros(4, 4)) == torch.backends.mkldnn.is_available()


def test_what_onednn_does_not_take_stays_plain() -> None:
    weight = torch.randn(5, 4, dtype=torch.float64)
    product = PackedLinear(weight, 1)
    assert product.packed is None
    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.equal(product(x), linear(x, weight))


def test_later_changes_of_a_packed_weight_are_not_seen() -> None:
    weight = torch.ones(4, 4)
    product = PackedLinear(weight, 1)
    weight.zero_()
    if product.packed is not None:
        assert torch.equal(product(torch.ones(1, 4)), torch.full((1, 4), 4.0))
