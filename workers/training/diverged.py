"""The one way in which training itself can fail."""


class Diverged(ArithmeticError):
    """A loss or metric became NaN or infinite."""

    def __init__(self, metric: str, value: float, step: int) -> None:
        super().__init__(f"{metric} is {value} at step {step}; lower lr, lengthen the warm-up or tighten grad_clip")
