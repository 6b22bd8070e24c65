"""The driver's picture of its trials equals what reading all of them again would give."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import AttemptRecord, RungRecord, TrialRecord, TrialState
from orchestrator.trial_table import TrialTable

START = datetime(2026, 1, 1, tzinfo=UTC)


def attempt(number: int, seconds: int | None) -> AttemptRecord:
    ended = None if seconds is None else START + timedelta(seconds=seconds)
    return AttemptRecord(number=number, started=START, ended=ended, devices=0.5)


@st.composite
def histories(draw: st.DrawFn) -> list[TrialRecord]:
    """Trials as they came to stand, one after another; each may stand otherwise later."""
    latest: dict[int, TrialRecord] = {}
    steps: list[TrialRecord] = []
    judgements = 0
    for _ in range(draw(st.integers(1, 25))):
        number = draw(st.integers(0, len(latest)))
        before = latest.get(number)
        if before is None:
            retries = draw(st.sampled_from([None, *latest])) if latest else None
            configuration = draw(st.sampled_from("abc"))
            trial = TrialRecord(
                number=number, state=TrialState.WAITING, params={}, seed=0, configuration=configuration,
                values=None, metrics={}, retries=retries,
            )  # fmt: skip
        else:
            trial = replace(before, state=draw(st.sampled_from(list(TrialState))))
            if draw(st.booleans()):
                seconds = draw(st.sampled_from([None, 10, 20]))
                trial = replace(trial, attempts=(*trial.attempts, attempt(len(trial.attempts) + 1, seconds)))
            if draw(st.booleans()):
                tokens = 100 * (len(trial.rungs) + 1)
                rung = RungRecord(tokens=tokens, metrics={}, order=judgements, kept=True)
                trial, judgements = replace(trial, rungs=(*trial.rungs, rung)), judgements + 1
        latest[number] = trial
        steps.append(trial)
    return steps


@given(histories())
def test_step_by_step_and_all_at_once_agree_with_brute_force(steps: list[TrialRecord]) -> None:
    table = TrialTable([])
    for trial in steps:
        table.put(trial)
    latest = {trial.number: trial for trial in steps}
    for made in (table, TrialTable(latest[number] for number in sorted(latest))):
        assert made.all() == tuple(latest[number] for number in sorted(latest))
        assert len(made) == len(latest)
        waiting = [trial for trial in made.all() if trial.state is TrialState.WAITING]
        assert made.first_waiting() == (waiting[0] if waiting else None)
        retried = {trial.retries for trial in latest.values()}
        for configuration in made.configurations:
            assert made.replicates(configuration) == [
                trial for trial in made.all() if trial.configuration == configuration and trial.number not in retried
            ]
        assert set(made.configurations) == {trial.configuration for trial in latest.values()}
        assert made.failed() == [
            trial for trial in made.all() if trial.state is TrialState.FAIL and trial.number not in retried
        ]
        seconds = sum(
            (each.ended - each.started).total_seconds() * 0.5
            for trial in latest.values()
            for each in trial.attempts
            if each.ended is not None
        )
        assert made.ended_device_seconds == seconds
        assert made.judgements == sum(len(trial.rungs) for trial in latest.values())
        for tokens in (100, 200, 300):
            judged = [(rung.order, t.number) for t in latest.values() for rung in t.rungs if rung.tokens == tokens]
            assert [trial.number for trial in made.judged_at(tokens)] == [number for _, number in sorted(judged)]
