"""Amounts are what people mean by them."""

from collections.abc import Callable

import pytest

from orchestrator import quantity


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (quantity.tokens, "4M", 4_000_000),
        (quantity.tokens, "200k", 200_000),
        (quantity.tokens, "1.5B", 1_500_000_000),
        (quantity.tokens, "2e3", 2_000),
        (quantity.tokens, "2T", 2_000_000_000_000),
        (quantity.count, "1.5M", 1_500_000),
        (quantity.tokens, "0.3k", 300),
        (quantity.size, "4MB", 4_000_000),
        (quantity.size, "4MiB", 4_194_304),
        (quantity.size, "1.5 GiB", 1_610_612_736),
        (quantity.size, "12", 12),
        (quantity.seconds, "45s", 45.0),
        (quantity.seconds, "30m", 1800.0),
        (quantity.seconds, "1.5h", 5400.0),
        (quantity.seconds, "2d", 172_800.0),
    ],
)
def test_text_is_read(read: Callable[[object], object], text: str, value: float) -> None:
    assert read(text) == value


@pytest.mark.parametrize("read", [quantity.tokens, quantity.count, quantity.size, quantity.seconds])
@pytest.mark.parametrize("value", [7, 0.5, None, True])
def test_what_is_no_text_passes(read: Callable[[object], object], value: object) -> None:
    assert read(value) is value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (quantity.tokens, "4Mi"),
        (quantity.tokens, "1.0005k"),
        (quantity.tokens, "-4M"),
        (quantity.tokens, ""),
        (quantity.size, "4mb"),
        (quantity.size, "0.3B"),
        (quantity.seconds, "2 weeks"),
        (quantity.seconds, "2M"),
        (quantity.count, "4MB"),
        (quantity.tokens, "1e999999k"),
        (quantity.size, "9" * 5000),
        (quantity.seconds, "1e99999999999h"),
    ],
)
def test_other_text_is_refused_with_examples(read: Callable[[object], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"must be .*, such as"):
        read(text)
