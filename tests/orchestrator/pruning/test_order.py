"""The order at a rung against dominance and hypervolume by definition."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.pruning.order import REFERENCE, best_first, contributions, draw, ranks, scaled
from orchestrator.pruning.rung import RungEntry
from tests.orchestrator.pruning import brute_force

cost = st.integers(0, 4).map(float)


def rows(objectives: int, most: int = 7) -> st.SearchStrategy[list[tuple[float, ...]]]:
    return st.lists(st.tuples(*[cost] * objectives), min_size=1, max_size=most)


several = st.integers(2, 4).flatmap(rows)
any_number = st.integers(1, 4).flatmap(rows)


def entries_of(costs: list[tuple[float, ...]], violations: list[float] | None = None) -> list[RungEntry]:
    broken = violations or [0.0] * len(costs)
    return [
        RungEntry(number=number, costs=row, violation=violation)
        for number, (row, violation) in enumerate(zip(costs, broken, strict=True))
    ]


@settings(deadline=None)
@given(any_number)
def test_ranks_are_the_fronts_that_peeling_gives(costs: list[tuple[float, ...]]) -> None:
    assert ranks(np.array(costs)).tolist() == brute_force.ranks(costs)


@settings(deadline=None)
@given(several)
def test_contributions_are_differences_of_hypervolumes(costs: list[tuple[float, ...]]) -> None:
    front = sorted({row for row in costs if not any(brute_force.dominates(other, row) for other in costs)})
    space = scaled(np.array(front))
    plain = [tuple(row) for row in space.tolist()]
    whole = brute_force.hypervolume(plain, REFERENCE)
    expected = [whole - brute_force.hypervolume(plain[:at] + plain[at + 1 :], REFERENCE) for at in range(len(plain))]
    assert contributions(space) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(several)
def test_a_front_is_ordered_by_what_the_rest_of_it_would_lose(costs: list[tuple[float, ...]]) -> None:
    """Every trial is, of itself and the better ones of its rank, the one whose removal loses the least."""
    space = [tuple(row) for row in scaled(np.array(costs)).tolist()]
    level = brute_force.ranks(costs)
    order = best_first(entries_of(costs), seed=0)
    for at, number in enumerate(order):
        rivals = [other for other in order[: at + 1] if level[other] == level[number]]
        whole = brute_force.hypervolume([space[other] for other in rivals], REFERENCE)
        lost = {
            left: whole - brute_force.hypervolume([space[other] for other in rivals if other != left], REFERENCE)
            for left in rivals
        }
        assert lost[number] <= min(lost.values()) + 1e-12


@settings(deadline=None)
@given(any_number, st.data())
def test_order_is_feasible_then_violation_then_rank(costs: list[tuple[float, ...]], data: st.DataObject) -> None:
    broken = data.draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5]), min_size=len(costs), max_size=len(costs)))
    order = best_first(entries_of(costs, broken), seed=3)
    feasible = [number for number in range(len(costs)) if broken[number] == 0]
    level = dict(zip(feasible, brute_force.ranks([costs[number] for number in feasible]), strict=True))
    keys = [(broken[number], level.get(number, 0)) for number in order]
    assert sorted(order) == list(range(len(costs)))
    assert keys == sorted(keys)


@settings(deadline=None)
@given(any_number, st.sampled_from([0.25, 4.0, 1024.0]), st.integers(-8, 8))
def test_units_do_not_matter(costs: list[tuple[float, ...]], factor: float, offset: int) -> None:
    """Powers of two and whole numbers, so that scaling back is exact."""
    moved = [(row[0] * factor + offset * factor, *row[1:]) for row in costs]
    assert best_first(entries_of(moved), seed=0) == best_first(entries_of(costs), seed=0)


@settings(deadline=None)
@given(any_number, st.randoms(use_true_random=False))
def test_the_order_in_which_trials_came_does_not_matter(costs: list[tuple[float, ...]], shuffler: Random) -> None:
    entries = entries_of(costs)
    shuffled = shuffler.sample(entries, len(entries))
    assert best_first(shuffled, seed=1) == best_first(entries, seed=1)


def test_near_equal_trials_do_not_push_each_other_out() -> None:
    """Of a pair of twins one keeps the whole worth of both; each alone contributes next to nothing."""
    costs = [(0.0, 1.0), (0.3, 0.3), (0.3001, 0.2999), (0.75, 0.2), (1.0, 0.0)]
    order = best_first(entries_of(costs), seed=0)
    assert {1, 2} & set(order[:3])
    assert order[-1] in (1, 2)


def test_ties_are_broken_by_the_seed() -> None:
    entries = entries_of([(1.0, 1.0)] * 5)
    orders = {tuple(best_first(entries, seed=seed)) for seed in range(20)}
    assert len(orders) > 10
    assert all(sorted(order) == list(range(5)) for order in orders)


def test_draws_are_uniform_and_repeatable() -> None:
    drawn = np.array([draw(7, number, "tie") for number in range(4000)])
    assert ((drawn >= 0) & (drawn < 1)).all()
    counts, _ = np.histogram(drawn, bins=8, range=(0, 1))
    assert ((counts - 500) ** 2 / 500).sum() < 24.3  # chi-squared with 7 degrees of freedom, 99.9 %
    assert draw(7, 1, "tie") == drawn[1]
    assert draw(7, 1, "bracket") != drawn[1] != draw(8, 1, "tie")
