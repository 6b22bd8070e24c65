"""Grouping, means and the front, against brute force and by hand."""

from collections.abc import Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.configurations import ConfigurationRecord, Grouping, front, group, pareto_front
from orchestrator.records import Objective, StudyRecord, StudyState, TrialRecord, TrialState
from tests.orchestrator.growing import growing_studies

COSTS = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 4).map(float), min_size=width, max_size=width), max_size=25)
)


@given(COSTS)
def test_the_front_is_what_nothing_dominates(costs: list[list[float]]) -> None:
    expected = {
        index
        for index, point in enumerate(costs)
        if not any(
            all(a <= b for a, b in zip(other, point, strict=True))
            and any(a < b for a, b in zip(other, point, strict=True))
            for other in costs
        )
    }
    assert pareto_front(costs) == expected


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30))
def test_the_front_does_not_depend_on_the_order(costs: list[tuple[float, float]]) -> None:
    found = {costs[index] for index in pareto_front(costs)}
    assert {costs[::-1][index] for index in pareto_front(costs[::-1])} == found


def trial(number: int, configuration: str, metrics: dict[str, float], **other: object) -> TrialRecord:
    values = {"state": TrialState.COMPLETE, "seed": 0, "values": tuple(metrics.values()), "params": {}, **other}
    return TrialRecord(number=number, configuration=configuration, metrics=metrics, **values)  # type: ignore[arg-type]


def study(trials: Sequence[TrialRecord]) -> StudyRecord:
    return StudyRecord(
        name="s",
        question="",
        state=StudyState.COMPLETE,
        objectives=(Objective(metric="ms", direction="minimize"), Objective(metric="accuracy", direction="maximize")),
        constraints=("ms <= 10",),
        search=(),
        seeds=(0, 1),
        spec={},
        budget=9,
        trials=tuple(trials),
    )


def test_replicates_are_one_configuration_with_means() -> None:
    record = study(
        [
            trial(0, "a", {"ms": 4.0, "accuracy": 0.5}),
            trial(1, "b", {"ms": 5.0, "accuracy": 0.5}),
            trial(2, "a", {"ms": 8.0, "accuracy": 0.9}),
            trial(3, "a", {"ms": 99.0}, state=TrialState.FAIL, values=None),
        ]
    )
    a, b = group(record)
    assert ([one.number for one in a.trials], [one.number for one in b.trials]) == ([0, 2, 3], [1])
    assert (a.metrics["ms"].mean, a.metrics["ms"].n) == (6.0, 2)
    assert (b.metrics["ms"].mean, b.metrics["ms"].low) == (5.0, None)
    assert a.on_front
    assert b.on_front
    assert front(record) == [a, b]


def test_directions_are_respected() -> None:
    record = study(
        [
            trial(number, str(number), {"ms": ms, "accuracy": accuracy})
            for number, (ms, accuracy) in enumerate(product((1.0, 2.0), (0.1, 0.9)))
        ]
    )
    assert [one.fingerprint for one in front(record)] == ["1"]


def test_only_feasible_complete_configurations_are_on_the_front() -> None:
    over = {"ms <= 10": 1.0}
    record = study(
        [
            trial(0, "infeasible", {"ms": 11.0, "accuracy": 1.0}, violations=over, feasible=False),
            trial(1, "failed", {"ms": 1.0}, state=TrialState.FAIL, values=None),
            trial(2, "pruned", {"ms": 12.0}, state=TrialState.PRUNED, values=None, violations=over, feasible=False),
            trial(3, "running", {}, state=TrialState.RUNNING, values=None),
            trial(4, "worse", {"ms": 9.0, "accuracy": 0.1}, violations={"ms <= 10": -1.0}),
        ]
    )
    found = {one.fingerprint: one for one in group(record)}
    assert [one.fingerprint for one in front(record)] == ["worse"]
    assert [name for name, one in found.items() if not one.feasible] == ["infeasible", "pruned"]
    assert [name for name, one in found.items() if not one.complete] == ["failed", "pruned", "running"]
    assert found["pruned"].metrics["ms"].mean == 12.0


def test_feasibility_is_judged_on_the_mean() -> None:
    record = study(
        [
            trial(0, "a", {"ms": 11.0, "accuracy": 1.0}, violations={"ms <= 10": 1.0}, feasible=False),
            trial(1, "a", {"ms": 8.0, "accuracy": 1.0}, violations={"ms <= 10": -2.0}),
        ]
    )
    assert [one.feasible for one in group(record)] == [True]


def test_equal_configurations_stay_together_on_the_front() -> None:
    record = study([trial(number, str(number), {"ms": 1.0, "accuracy": 0.5}) for number in range(3)])
    assert len(front(record)) == 3


def test_an_empty_study_has_no_front() -> None:
    assert group(study([])) == []


def stands(before: ConfigurationRecord | None, now: ConfigurationRecord) -> bool:
    """Whether nothing happened to a configuration: its trials are the same objects."""
    same = before == now and before is not None
    return same and all(old is new for old, new in zip(before.trials, now.trials, strict=True))


@settings(deadline=None)
@given(growing_studies())
def test_a_growing_study_is_grouped_as_if_it_were_new_each_time(moments: list[StudyRecord]) -> None:
    grouping = Grouping()
    before: dict[str, ConfigurationRecord] = {}
    for moment in moments:
        found = grouping.group(moment)
        assert found == group(moment)
        assert all(before[one.fingerprint] is one for one in found if stands(before.get(one.fingerprint), one))
        before = {one.fingerprint: one for one in found}
