"""Amounts as people write them: `4M` tokens, `4MB` or `4MiB` of memory, `30m` or `2h` of time.

Decimal prefixes are powers of 1,000 and binary ones (`Ki`, `Mi`, `Gi`) powers of 1,024, never mixed. Plain numbers pass
through unchanged: tokens, bytes and seconds.
"""

import re
from collections.abc import Mapping
from decimal import Decimal

_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")

_LARGEST = 10**30
"""No amount of anything here is larger; numbers of millions of digits are text worth an error, not a computation."""
_COUNT: Mapping[str, int] = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_BYTES: Mapping[str, int] = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SECONDS: Mapping[str, int] = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def tokens(value: object) -> object:
    """A number of tokens from `200k`, `4M` or `1.5B`; anything but text is returned as it is."""
    return _whole(value, _COUNT, "a number of tokens, such as 200k, 4M or 1B")


def count(value: object) -> object:
    """A number of anything, with the same prefixes; anything but text is returned as it is."""
    return _whole(value, _COUNT, "a number, such as 200k, 4M or 1B")


def size(value: object) -> object:
    """Bytes from `4MB` (4,000,000) or `4MiB` (4,194,304); anything but text is returned as it is."""
    return _whole(value, _BYTES, "an amount of memory, such as 4MB (4,000,000 bytes) or 4MiB")


def seconds(value: object) -> object:
    """Seconds, as a float, from `45s`, `30m`, `2h` or `1d`; anything but text is returned as it is."""
    if not isinstance(value, str):
        return value
    return float(_scaled(value, _SECONDS, "a duration, such as 45s, 30m, 2h or 1d"))


def _whole(value: object, units: Mapping[str, int], allowed: str) -> object:
    if not isinstance(value, str):
        return value
    amount = _scaled(value, units, allowed)
    if amount != amount.to_integral_value():
        raise ValueError(f"must be {allowed}, and come out whole")
    return int(amount)


def _scaled(text: str, units: Mapping[str, int], allowed: str) -> Decimal:
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"must be {allowed}")
    amount = Decimal(match[1])
    if amount > _LARGEST:
        raise ValueError(f"must be {allowed}, and not be so large")
    return amount * units[match[2]]
