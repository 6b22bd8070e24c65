"""The replay for readers against Optuna's own storage over the same entries, whatever they are, at any time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.storages import JournalStorage

from orchestrator.errors import StudyError
from orchestrator.journal import our_trials, trial_record
from orchestrator.journal_file import JournalFile
from orchestrator.journal_replay import JournalReplay
from orchestrator.records import TrialRecord

NAME = "s"
FINISHED = (1, 2, 3)
NOW = "2026-01-01T00:00:00+00:00"
ASKED = {"seed": 0, "configuration": "c", "knobs": {"num_loops": 2}}
KINDS = {
    "lr": FloatDistribution(0.1, 1.0, log=True),
    "loops": IntDistribution(0, 4),
    "gate": CategoricalDistribution(["learned", 0.5]),
    "none": CategoricalDistribution([None, "x"]),
}
ATTEMPT = {"started": NOW, "ended": None, "failure": None, "info": {}, "devices": 1.0}
RESULT = {"metrics": {"m": 1.5}, "failure": None, "ended": NOW}
ATTRIBUTES = st.sampled_from(
    [{"attempt:1": ATTEMPT}, {"attempt:2": {**ATTEMPT, "ended": NOW}}, {"result": RESULT}, {"retries": 3}, ASKED]
)
INTERNAL = st.sampled_from([0.0, 1.0])
NAMES = st.sampled_from(["a", "b"])
STATES = st.integers(0, 4)
STUDIES, TRIALS = st.sampled_from([0, 0, 0, 1]), st.integers(0, 4)


def entry(operation: int, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op_code": st.just(operation), "worker_id": st.just("other"), **fields})


@st.composite
def created(draw: st.DrawFn) -> dict[str, Any]:
    """A trial as `create_new_trial` writes it, with a template and without."""
    made: dict[str, Any] = {
        "op_code": 4,
        "worker_id": "other",
        "study_id": draw(STUDIES),
        "datetime_start": NOW,
    }
    if draw(st.sampled_from([True, True, True, False])):
        state, kinds = (
            draw(st.sampled_from([0, 0, 0, 1, 2, 4])),
            draw(st.dictionaries(NAMES, st.sampled_from(list(KINDS.values())))),
        )
        values = [1.0] if state in FINISHED else None
        several = draw(st.booleans()) and values is not None
        made |= {
            "state": state,
            "value": None if several or values is None else values[0],
            "values": [1.0, 2.0] if several else None,
            "distributions": {name: distribution_to_json(kind) for name, kind in kinds.items()},
            "params": dict.fromkeys(kinds, 1.0),
            "user_attrs": dict(ASKED) if draw(st.sampled_from([True, True, False])) else {},
            "system_attrs": {"constraints:m <= 1": 0.5} if draw(st.booleans()) else {},
            "intermediate_values": {},
        }
        if state in FINISHED:
            made["datetime_complete"] = NOW
    return made


@st.composite
def told(draw: st.DrawFn) -> dict[str, Any]:
    state = draw(STATES)
    values = [2.0] if state in FINISHED else None
    times = {"datetime_start": NOW, "datetime_complete": NOW}
    return {"op_code": 6, "worker_id": "other", "trial_id": draw(TRIALS), "state": state, "values": values, **times}


ENTRIES = st.one_of(
    created(),
    created(),
    told(),
    told(),
    entry(
        5,
        trial_id=TRIALS,
        param_name=NAMES,
        param_value_internal=INTERNAL,
        distribution=st.sampled_from([distribution_to_json(kind) for kind in KINDS.values()]),
    ),
    st.builds(
        lambda trial, attributes: [
            {"op_code": 8, "worker_id": "other", "trial_id": trial, "user_attr": {name: value}}
            for name, value in attributes.items()
        ],
        TRIALS,
        ATTRIBUTES,
    ),
    entry(9, trial_id=TRIALS, system_attr=st.sampled_from([{"constraints:m <= 1": -1.0}, {"constraints:x": 2.0}])),
    entry(2, study_id=STUDIES, user_attr=st.dictionaries(NAMES, st.integers(), min_size=1, max_size=1)),
    st.one_of(
        entry(0, study_name=st.sampled_from([NAME, "t"]), directions=st.just([1])),
        entry(7, trial_id=TRIALS, step=st.just(1), intermediate_value=st.just(0.5)),
        entry(10),
        st.builds(
            lambda made: [
                {"op_code": 1, "worker_id": "other", "study_id": 0},
                {"op_code": 0, "worker_id": "other", "study_name": NAME, "directions": [1]},
                {**made, "study_id": 1},
            ],
            created(),
        ),
        entry(1, study_id=st.integers(0, 2)),
    ),
)
"""Trials of one study mostly, so that entries meet; now and then a study is deleted and another takes its place."""


def flat(entries: Sequence[Any]) -> list[dict[str, Any]]:
    """Attributes that belong together come as one list."""
    return [each for one in entries for each in (one if isinstance(one, list) else [one])]


def expected(path: Path) -> tuple[dict[str, Any], tuple[TrialRecord, ...]]:
    """What Optuna's storage says."""
    storage = JournalStorage(JournalFile(path))
    study_id = storage.get_study_id_from_name(NAME)
    trials = tuple(trial_record(trial) for trial in our_trials(storage, study_id))
    return storage.get_study_user_attrs(study_id), trials


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(parts=st.lists(st.lists(ENTRIES, min_size=4, max_size=14), min_size=1, max_size=4))
def test_it_makes_of_any_entries_what_optuna_makes(tmp_path: Path, parts: list[list[Any]]) -> None:
    path = tmp_path / "journal"
    path.unlink(missing_ok=True)
    first = {"op_code": 0, "worker_id": "other", "study_name": NAME, "directions": [1]}
    JournalFile(path).append_logs([first])
    replay: JournalReplay | None = replay_of(path)
    before: dict[int, TrialRecord] = {}
    for part in parts:
        JournalFile(path).append_logs(flat(part))
        try:
            attributes, trials = expected(path)
        except KeyError:
            with pytest.raises(StudyError, match="damaged"):
                replay_of(path)
            replay = None
            continue
        if replay is None:
            replay, before = replay_of(path), {}
        replay.sync()
        found = replay.trials()
        assert (replay.attributes, found) == (attributes, trials)
        assert replay_of(path).trials() == trials
        assert all(
            record is before[record.number]
            for record in found
            if record.number in before and before[record.number].state.finished and record == before[record.number]
        )
        before = {record.number: record for record in found}


OTHER = {"worker_id": "other"}
STUDY = {"op_code": 0, **OTHER, "study_name": NAME, "directions": [1]}
ENQUEUED = {"op_code": 4, **OTHER, "study_id": 0, "datetime_start": NOW, "state": 4}
MADE = {**ENQUEUED, "state": 0, "user_attrs": ASKED}


def replay_of(path: Path) -> JournalReplay:
    return JournalReplay(JournalFile(path), NAME, str(path))


def begin(path: Path, *entries: dict[str, Any]) -> tuple[JournalFile, JournalReplay]:
    journal = JournalFile(path / "journal")
    journal.append_logs([STUDY, *entries])
    return journal, replay_of(path / "journal")


def numbers(replay: JournalReplay) -> list[int]:
    replay.sync()
    return [trial.number for trial in replay.trials()]


def test_a_trial_that_nothing_touched_keeps_its_record(tmp_path: Path) -> None:
    journal, replay = begin(tmp_path, MADE, MADE)
    first, second = replay.trials()
    journal.append_logs([{"op_code": 8, **OTHER, "trial_id": 1, "user_attr": {"attempt:1": ATTEMPT}}])
    replay.sync()
    again, changed = replay.trials()
    assert again is first
    assert changed is not second
    assert [attempt.number for attempt in changed.attempts] == [1]


def test_trials_stay_in_order_when_one_becomes_part_of_the_study_late(tmp_path: Path) -> None:
    journal, replay = begin(tmp_path, ENQUEUED, MADE, MADE)
    assert numbers(replay) == [1, 2]
    journal.append_logs(
        [{"op_code": 8, **OTHER, "trial_id": 0, "user_attr": {name: value}} for name, value in ASKED.items()]
    )
    assert numbers(replay) == [0, 1, 2]


def test_a_study_that_took_the_place_of_a_deleted_one_has_its_own_trials(tmp_path: Path) -> None:
    journal, replay = begin(tmp_path, MADE, MADE)
    assert numbers(replay) == [0, 1]
    journal.append_logs([{"op_code": 1, **OTHER, "study_id": 0}, STUDY])
    assert numbers(replay) == []
    journal.append_logs([{**MADE, "study_id": 1}])
    assert numbers(replay) == [0]
