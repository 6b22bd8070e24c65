"""A link shows the same view: through query parameters and back, and what cannot be is ignored."""

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.address import Address

names = st.none() | st.text("abcdefgh/_-.0123456789", min_size=1, max_size=20)
fingerprints = st.lists(st.text("0123456789abcdef", min_size=16, max_size=16), unique=True, max_size=5).map(tuple)
addresses = st.builds(
    Address,
    study=names,
    picks=fingerprints,
    baseline=names,
    y=names,
    left=names,
    right=names,
    curve=names,
    by=st.sampled_from([None, "step", "tokens"]),
    trial=st.none() | st.integers(0, 10**6),
)


@given(addresses)
def test_an_address_survives_the_address_bar(address: Address) -> None:
    query = urlencode(address.to_params())
    assert Address.from_params(dict(parse_qsl(query))) == address


@pytest.mark.parametrize(
    "params",
    [
        {"trial": "-1"},
        {"trial": "seven"},
        {"trial": "²"},
        {"by": "minutes"},
        {"picks": "~~"},
        {"study": ""},
        {"colour": "red"},
    ],
)
def test_what_cannot_be_is_ignored(params: dict[str, str]) -> None:
    assert Address.from_params(params) == Address()


def test_gaps_are_filled_from_the_same_study_only() -> None:
    remembered = Address(study="a", picks=("1", "2"), y="val/accuracy", trial=3)
    assert Address().filled_from(remembered) == remembered
    assert Address(study="a", trial=0).filled_from(remembered) == Address(
        study="a", picks=("1", "2"), y="val/accuracy", trial=0
    )
    assert Address(study="b").filled_from(remembered) == Address(study="b")


def test_a_click_toggles_and_a_box_adds() -> None:
    address = Address(picks=("a",))
    assert address.toggled(("b",)).picks == ("a", "b")
    assert address.toggled(("a",)).picks == ()
    assert address.toggled(("b", "a", "c")).picks == ("a", "b", "c")


def test_budgets_and_smoothing_travel_and_nonsense_does_not() -> None:
    address = Address(study="s", budgets={"decode/ms_per_token": 12.0, "kv/bytes": 4194304.0}, smooth=5, by="time")
    params = address.to_params()
    assert params["budgets"] == "decode/ms_per_token:12~kv/bytes:4194304"
    assert Address.from_params(params).budgets["decode/ms_per_token"] == 12.0
    assert Address.from_params({"budgets": "a:b~:3~c:inf~d:1", "smooth": "-1", "by": "day"}) == Address(
        budgets={"d": 1.0}
    )
    assert address.with_budget("kv/bytes", None).budgets == {"decode/ms_per_token": 12.0}
    assert Address(study="s").filled_from(address).budgets == address.budgets
