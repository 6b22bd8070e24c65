"""Matrix products of a few rows, on weights that oneDNN has reordered once for this CPU.

The one home of two private operators of PyTorch, the ones that `torch.compile` emits when it freezes a model. Products
of a few rows with plain weights are slower, at times many times. Where the operators do not apply (another device or
type, or a PyTorch without them) the plain product is used: the same numbers up to rounding.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

MIN_ROWS = 4
"""Fewest rows to reorder for: layouts chosen for 1 or 2 rows are no faster there, and slower for long prompts."""


class PackedLinear:
    """y = x W^T for a frozen weight (out, in); later changes of the weight are not seen."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        frozen = weight.detach()
        self.read_bytes = frozen.numel() * frozen.element_size()
        """What one product reads of the weight."""
        self.packed = _pack(frozen, max(rows, MIN_ROWS)) if can_pack(frozen) else None
        self.plain = frozen.clone() if self.packed is None else None

    def __call__(self, x: Tensor) -> Tensor:
        """Map `x` (..., in) to (..., out)."""
        if self.plain is not None:
            return linear(x, self.plain)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")
        return product


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN can reorder this weight here."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if weight.device.type != "cpu" or not available or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    bfloat16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return bool(weight.dtype == torch.float32 or bfloat16)


def _pack(weight: Tensor, rows: int) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return packed
