"""The one way in which a configuration refuses a value."""


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raise a `ValueError` that says what, the value and what is allowed, unless the condition holds."""
    if not condition:
        raise ValueError(f"{name} is {value!r}; it must be {allowed}")
