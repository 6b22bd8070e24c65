"""The pruner `median` against the median itself, and against dominance by definition."""

import statistics

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.pruning.median_pruner import EARLIER, MedianPruner
from orchestrator.pruning.rung import RungEntry
from tests.orchestrator.pruning import brute_force

PRUNER = MedianPruner(min_tokens=100, reduction_factor=3.0)
cost = st.integers(0, 6).map(float)


def asked_last(entries: list[RungEntry]) -> bool:
    return PRUNER.keeps(entries[-1].number, 100, entries)


@settings(deadline=None)
@given(st.lists(cost, min_size=EARLIER + 1, max_size=14))
def test_one_objective_is_compared_with_the_upper_median_of_the_earlier_trials(values: list[float]) -> None:
    entries = [RungEntry(number=number, costs=(value,)) for number, value in enumerate(values)]
    assert asked_last(entries) == (values[-1] <= statistics.median_high(values[:-1]))


@settings(deadline=None)
@given(st.lists(st.tuples(cost, cost), min_size=EARLIER + 1, max_size=10))
def test_with_several_objectives_ranks_are_compared(costs: list[tuple[float, ...]]) -> None:
    entries = [RungEntry(number=number, costs=row) for number, row in enumerate(costs)]
    ranks = brute_force.ranks(costs)
    better = [rank for rank in ranks[:-1] if rank < ranks[-1]]
    assert asked_last(entries) == (len(better) <= len(costs[:-1]) / 2)


@settings(deadline=None)
@given(st.integers(0, EARLIER))
def test_nothing_is_stopped_before_enough_trials_were_judged(earlier: int) -> None:
    entries = [RungEntry(number=number, costs=(0.0,)) for number in range(earlier)]
    assert asked_last([*entries, RungEntry(number=earlier, costs=(1.0,))]) == (earlier < EARLIER)


def test_feasible_trials_beat_infeasible_ones_and_never_the_reverse() -> None:
    feasible = [RungEntry(number=number, costs=(9.0,)) for number in range(4)]
    broken = [RungEntry(number=number, costs=(0.0,), violation=1.0) for number in range(4, 8)]
    assert not asked_last([*feasible, RungEntry(number=8, costs=(0.0,), violation=0.5)])
    assert asked_last([*broken, RungEntry(number=8, costs=(9.0,))])
    assert asked_last([*broken, RungEntry(number=8, costs=(9.0,), violation=1.0)])
    assert not asked_last([*broken, RungEntry(number=8, costs=(0.0,), violation=1.5)])


def test_rungs_are_those_of_the_ladder() -> None:
    assert PRUNER.rungs(900) == (100, 300)
