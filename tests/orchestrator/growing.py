"""Studies as a reader meets them one after another: trials come, change and end; now and then another study begins."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from orchestrator.records import Objective, StudyRecord, StudyState, TrialRecord, TrialState

SMALL = st.integers(0, 3).map(float)


@st.composite
def trial_records(draw: st.DrawFn, number: int, configuration: str) -> TrialRecord:
    """One trial of a study with the objectives `ms` and `accuracy`."""
    state = draw(st.sampled_from([TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING]))
    done = state is TrialState.COMPLETE
    other = draw(st.dictionaries(st.sampled_from(["kv", "loops/x"]), SMALL))
    metrics = {"ms": draw(SMALL), "accuracy": draw(SMALL), **other} if done else other
    over = draw(st.sampled_from([-1.0, -1.0, 1.0])) if done else 0.0
    return TrialRecord(
        number=number,
        state=state,
        params={"lr": draw(SMALL), "gate_mode": draw(st.sampled_from(["learned", 0.5]))},
        seed=number,
        configuration=configuration,
        values=(metrics["ms"], metrics["accuracy"]) if done else None,
        metrics=metrics,
        knobs={"num_loops": 1 + len(configuration) % 2, "window": draw(st.sampled_from([None, 8]))},
        feasible=over <= 0,
        violations={"ms <= 2": over} if done else {},
    )


@st.composite
def growing_studies(draw: st.DrawFn) -> list[StudyRecord]:
    """One study at successive moments, or several of one name; a trial that stands as before is the same object."""
    seen, trials = [], list[TrialRecord]()
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 9)) == 9:
            trials = []
        for index, trial in enumerate(trials):
            if draw(st.integers(0, 4)) == 4:
                trials[index] = draw(trial_records(trial.number, trial.configuration))
        for _ in range(draw(st.integers(0, 4))):
            trials.append(draw(trial_records(len(trials), draw(st.sampled_from(["a", "bb", "c", "dd", "e", "ff"])))))
        seen.append(study_of(tuple(trials)))
    return seen


def study_of(trials: tuple[TrialRecord, ...], **changes: Any) -> StudyRecord:
    """A study of these trials."""
    made = StudyRecord(
        name="s",
        question="",
        state=StudyState.RUNNING,
        objectives=(Objective(metric="ms", direction="minimize"), Objective(metric="accuracy", direction="maximize")),
        constraints=("ms <= 2",),
        search=("lr", "gate_mode"),
        seeds=(0,),
        spec={},
        budget=9,
        trials=trials,
    )
    return replace(made, **changes)
