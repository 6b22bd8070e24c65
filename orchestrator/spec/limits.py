"""Numbers of a study file and how large they may be.

The bounds lie beyond what any machine holds or any study lasts, so that a slip of the keyboard is refused when the file
is read, with the reason, and nothing behind it ever computes with absurd numbers.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.quantity import seconds, size, tokens

MOST_PARAMETERS = 10**12
"""Of a model that is trained or measured."""
MOST_SLOTS = 10**9
"""Batch times length of one forward pass."""
MOST_CACHE_BYTES = 10**15
"""Keys and values of one batch in decoding."""


def _at_most(limit: int, reason: str) -> AfterValidator:
    def check(value: float) -> float:
        if value > limit:
            raise ValueError(f"must be at most {limit:,}: {reason}")
        return value

    return AfterValidator(check)


def _plain_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,99}", name):
        raise ValueError("must be letters, digits and any of _./-, at most 100, the first a letter or digit")
    return name


Whole = Annotated[int, _at_most(10**9, "no study counts further")]
Count = Annotated[Whole, Field(ge=1)]
Width = Annotated[int, Field(ge=1), _at_most(10**7, "no layer is so wide")]
Depth = Annotated[int, Field(ge=1), _at_most(10**4, "no model is so deep")]
Seed = Annotated[int, Field(ge=0), _at_most(2**63 - 1, "a seed has 63 bits")]
Tokens = Annotated[int, BeforeValidator(tokens), Field(ge=1), _at_most(10**15, "no study trains on so many")]
Seconds = Annotated[float, BeforeValidator(seconds), Field(gt=0), _at_most(10 * 365 * 86400, "that is ten years")]
Memory = Annotated[int, BeforeValidator(size), Field(ge=1), _at_most(10**15, "no machine has so much memory")]
PlainName = Annotated[str, AfterValidator(_plain_name)]
"""Of a label, a resource or a device type: nothing that Ray reads as an expression."""
Hours = Annotated[float, Field(gt=0), _at_most(10**9, "no study costs so many")]
