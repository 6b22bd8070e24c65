"""The one way in which training itself can fail."""


class DivergenceError(ArithmeticError):
    """A loss or metric became NaN or infinite."""

    def __init__(self, metric: str, value: float, step: int | None = None) -> None:
        """`step` is the optimizer step at which training produced the value, None where nothing is trained."""
        remedy = "" if step is None else f" at step {step}; lower lr, lengthen the warm-up or tighten grad_clip"
        super().__init__(f"{metric} is {value}{remedy}")
