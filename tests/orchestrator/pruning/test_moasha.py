"""The pruner `moasha`: ASHA with one objective, the front with several, cohorts with brackets."""

from collections import Counter

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.pruning.moasha import Moasha
from orchestrator.pruning.rung import RungEntry
from tests.orchestrator.pruning import brute_force

cost = st.integers(0, 6).map(float)
triples = st.lists(st.tuples(cost, cost, cost), min_size=1, max_size=9)
singles = st.lists(st.integers(0, 1000), min_size=1, max_size=30, unique=True)


def moasha(factor: float = 3.0, brackets: int = 1, seed: int = 0) -> Moasha:
    return Moasha(min_tokens=100, reduction_factor=factor, brackets=brackets, seed=seed)


def entries_of(costs: list[tuple[float, ...]]) -> list[RungEntry]:
    return [RungEntry(number=number, costs=row) for number, row in enumerate(costs)]


def asked_last(pruner: Moasha, entries: list[RungEntry], rung: int = 100) -> bool:
    return pruner.keeps(entries[-1].number, rung, entries)


@settings(deadline=None)
@given(singles, st.sampled_from([2, 3, 4]))
def test_one_objective_is_optunas_successive_halving(values: list[int], factor: int) -> None:
    """The same trials, one after the other, judged at one rung by Optuna's pruner."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=factor)
    study = optuna.create_study(direction="minimize", pruner=pruner)
    expected = []
    for value in values:
        trial = study.ask()
        trial.report(value, 1)
        expected.append(not trial.should_prune())
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    entries = entries_of([(float(value),) for value in values])
    assert [asked_last(moasha(factor), entries[: at + 1]) for at in range(len(entries))] == expected


@settings(deadline=None)
@given(st.lists(cost, min_size=1, max_size=12), st.sampled_from([1.5, 2.0, 2.5, 3.0]))
def test_one_objective_keeps_so_many_and_no_more_whatever_is_tied(values: list[float], factor: float) -> None:
    entries = entries_of([(value,) for value in values])
    kept = [entry for entry in entries if moasha(factor).keeps(entry.number, 100, entries)]
    places = max(1, int(len(values) / factor))
    assert len(kept) == places
    assert sorted(entry.costs[0] for entry in kept) == sorted(values)[:places]


@settings(deadline=None)
@given(triples)
def test_a_trial_that_none_dominates_goes_on(costs: list[tuple[float, ...]]) -> None:
    entries = entries_of(costs)
    kept = {entry.costs for entry in entries if moasha().keeps(entry.number, 100, entries)}
    assert kept >= {row for row in costs if not any(brute_force.dominates(other, row) for other in costs)}


@settings(deadline=None)
@given(triples)
def test_a_dominated_trial_goes_on_only_in_the_top_share(costs: list[tuple[float, ...]]) -> None:
    entries, ranks = entries_of(costs), brute_force.ranks(costs)
    kept = [entry.number for entry in entries if moasha().keeps(entry.number, 100, entries)]
    dominated = [number for number in kept if ranks[number] > 0]
    assert not dominated or len(kept) <= max(1, len(costs) // 3)
    for number in dominated:
        assert all(other in kept for other in range(len(costs)) if ranks[other] < ranks[number])


def test_of_equal_trials_one_is_on_the_front() -> None:
    """A plateau where nothing tells trials apart is no reason to train them all."""
    entries = entries_of([(1.0, 2.0, 3.0)] * 9)
    assert sum(moasha().keeps(number, 100, entries) for number in range(9)) == 3


@settings(deadline=None)
@given(triples, st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0]), min_size=9, max_size=9))
def test_infeasible_never_goes_on_before_feasible(costs: list[tuple[float, ...]], violations: list[float]) -> None:
    entries = [
        RungEntry(number=number, costs=row, violation=broken)
        for number, (row, broken) in enumerate(zip(costs, violations, strict=False))
    ]
    kept = {entry.number for entry in entries if moasha().keeps(entry.number, 100, entries)}
    for entry in entries:
        if entry.number in kept and entry.violation > 0:
            better = [other for other in entries if other.violation < entry.violation]
            assert all(other.number in kept for other in better)


def test_infeasible_costs_do_not_count() -> None:
    """The best costs of all are worth nothing beside feasible trials, and take none of them off the front."""
    entries = [
        RungEntry(number=0, costs=(9.0, 8.0)),
        RungEntry(number=1, costs=(8.0, 9.0)),
        RungEntry(number=2, costs=(0.0, 0.0), violation=0.1),
    ]
    assert [moasha().keeps(number, 100, entries) for number in range(3)] == [True, True, False]


@settings(deadline=None)
@given(triples, st.tuples(cost, cost, cost))
def test_one_more_dominated_trial_stops_nobody_on_the_front(
    costs: list[tuple[float, ...]], extra: tuple[float, ...]
) -> None:
    entries = entries_of([*costs, extra])
    for entry in entries[:-1]:
        on_front = not any(other.costs == entry.costs for other in entries if other is not entry) and not any(
            brute_force.dominates(other, entry.costs) for other in costs
        )
        if on_front and brute_force.dominates(entry.costs, extra):
            assert moasha().keeps(entry.number, 100, entries[:-1])
            assert moasha().keeps(entry.number, 100, entries)


def test_the_first_trials_are_judged_by_those_that_are_there() -> None:
    entries = entries_of([(2.0,), (3.0,), (1.0,)])
    assert [asked_last(moasha(), entries[: at + 1]) for at in range(3)] == [True, False, True]


def test_every_seed_breaks_ties_in_its_own_way() -> None:
    entries = entries_of([(1.0,)] * 9)
    kept = {tuple(number for number in range(9) if moasha(seed=seed).keeps(number, 100, entries)) for seed in range(12)}
    assert len(kept) > 6
    again = {
        tuple(number for number in range(9) if moasha(seed=seed).keeps(number, 100, entries)) for seed in range(12)
    }
    assert kept == again


def test_brackets_are_drawn_by_weight_from_the_seed_and_the_number() -> None:
    pruner = moasha(brackets=3, seed=5)
    drawn = Counter(pruner.bracket(number) for number in range(13_000))
    assert [drawn[bracket] / 13_000 for bracket in range(3)] == pytest.approx([9 / 13, 3 / 13, 1 / 13], abs=0.02)
    other = moasha(brackets=3, seed=6)
    assert [pruner.bracket(number) for number in range(50)] != [other.bracket(number) for number in range(50)]
    assert {moasha().bracket(number) for number in range(50)} == {0}


def test_a_bracket_is_first_judged_at_its_own_rung() -> None:
    pruner = moasha(brackets=3)
    rungs = pruner.rungs(2700)
    assert rungs == (100, 300, 900)
    for bracket in range(3):
        first, second = [number for number in range(300) if pruner.bracket(number) == bracket][:2]
        entries = [RungEntry(number=first, costs=(1.0,)), RungEntry(number=second, costs=(2.0,))]
        assert [pruner.keeps(second, rung, entries) for rung in rungs] == [rung < rungs[bracket] for rung in rungs]


def test_brackets_do_not_compete() -> None:
    """However good the trials of other brackets are, a bracket's own decide."""
    pruner = moasha(brackets=2)
    own = [number for number in range(200) if pruner.bracket(number) == 0][:4]
    others = [number for number in range(200) if pruner.bracket(number) == 1][:9]
    entries = [RungEntry(number=number, costs=(float(number),)) for number in own]
    crowd = [RungEntry(number=number, costs=(-1.0,)) for number in others]
    for number in own:
        assert pruner.keeps(number, 300, [*crowd, *entries]) == pruner.keeps(number, 300, entries)


def test_a_trial_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match=r"trial 7 has no entry among \[0\]; add it before asking"):
        moasha().keeps(7, 100, entries_of([(1.0,)]))
