"""Studies to look at: real ones on disk, made through the study's own storage and MLflow, with results from a formula.

The formula is in `measured`, so that a test can say what a page must show.
"""

import math
from collections.abc import Callable, Container
from datetime import UTC, datetime
from pathlib import Path

import optuna
from optuna.trial import create_trial

from orchestrator.configuration import resolve
from orchestrator.driver_lock import driver_lock
from orchestrator.home import Home
from orchestrator.journal import create_journal, open_journal
from orchestrator.records import StudyRecord, StudyState, TrialRecord
from orchestrator.search_space import SearchSpace
from orchestrator.spec import load_spec
from orchestrator.stored_trial import asked, result
from orchestrator.studies import read_study
from orchestrator.study import Study
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from workers.protocol import Failure, FailureReason, MetricReport, TrialOutcome

SPEC = """
name: {name}
question: Which loop count, window and gate pay for themselves?
model: {{variant: plt, d_model: 32, num_layers: 1, num_heads: 2, num_kv_heads: 1}}
data: {{corpus: stdlib, seq_len: 128}}
train: {{tokens: 200k, batch_size: 8}}
search:
  num_loops: {{choices: [1, 2, 3]}}
  window: {{choices: [8, 64], when: {{num_loops: ">1"}}}}
  gate_mode: {{choices: [learned, 0.5], when: {{num_loops: ">1"}}}}
seeds: [0, 1, 2]
objectives:
  - {{metric: val/bits_per_byte, direction: minimize}}
  - {{metric: decode/ms_per_token, direction: minimize}}
  - {{metric: kv/bytes_per_sequence, direction: minimize}}
constraints: ["decode/ms_per_token <= 6.5"]
sampler: {{name: grid}}
budget: {{configurations: 9}}
benchmark: {{batch_sizes: [1], context: 128, generate: 8}}
"""

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
Measure = Callable[[TrialRecord], dict[str, float]]


def measured(trial: TrialRecord) -> dict[str, float]:
    """Loops help with falling returns and cost a little time; a wide window costs memory and helps a little."""
    loops = int(trial.params["num_loops"])
    window = int(trial.params.get("window") or 0)
    learned = trial.params.get("gate_mode") == "learned"
    noise = 0.01 * math.sin(7.0 * trial.seed + loops)
    bits = 2.2 - 0.18 * math.log2(loops) - 0.006 * math.sqrt(window) - 0.02 * learned + noise
    return {
        "val/bits_per_byte": bits,
        "val/accuracy": 0.9 - 0.2 * bits,
        "decode/ms_per_token": 5.5 + 0.25 * loops + 0.004 * window + 0.03 * trial.seed,
        "kv/bytes_per_sequence": 524288.0 + (loops - 1) * window * 1024.0,
    }


def plant_study(
    home: Home,
    name: str,
    *,
    failing: Container[int] = (),
    trials: int | None = None,
    track: bool = False,
    spec_text: str = SPEC,
    measure: Measure = measured,
) -> StudyRecord:
    """Make a study: trials with a number in `failing` diverge, `trials` stops early, `track` writes to MLflow."""
    spec = load_spec(Path("study.yaml"), text=spec_text.format(name=name))
    tracker = MlflowTracker(home, name) if track else None
    with driver_lock(home, name):
        study = Study.open(spec, home)
        if tracker:
            tracker.start_study(study.record())
        done = 0
        while (trials is None or done < trials) and (trial := study.ask()) is not None:
            done += 1
            _carry_out(study, trial, tracker, trial.number in failing, measure(trial))
        left = trials is not None and done >= trials
        state = StudyState.INTERRUPTED if left else StudyState.COMPLETE
        study.set_state(state, "" if left else study.why_exhausted())
        if tracker:
            tracker.finish_study(study.record())
            tracker.close()
    return read_study(home, name)


def _carry_out(
    study: Study, trial: TrialRecord, tracker: MlflowTracker | None, fails: bool, metrics: dict[str, float]
) -> None:
    number = trial.number
    study.start_attempt(number)
    if tracker:
        tracker.start_trial(study.trial(number))
        for step in range(10, 201, 10):
            loss = metrics["val/bits_per_byte"] + 3.0 * math.exp(-step / 40)
            value = math.nan if fails and step == 100 else loss
            report = MetricReport(step=step, tokens=1024 * step, metrics={"train/loss": value}, seconds=step / 10)
            tracker.report(number, report)
    info = {"hardware": "2 cores", "versions": {"torch": "2.13.0"}, "precision": "float32"}
    if fails:
        said = "train/loss became nan at step 100"
        failure = Failure(reason=FailureReason.DIVERGED, message=said, traceback="Traceback (most recent call last)")
        study.end_attempt(number, TrialOutcome(info=info, failure=failure))
        ended = study.fail(number, failure)
    else:
        study.end_attempt(number, TrialOutcome(metrics=metrics, info=info))
        ended = study.complete(number, metrics)
    if tracker:
        tracker.finish_trial(ended)


MANY = SPEC.replace("search:\n", "search:\n  lr: {{low: 1.0e-3, high: 1.0e-2, log: true}}\n").replace("grid", "random")


def plant_many(home: Home, name: str, configurations: int) -> StudyRecord:
    """A study with that many configurations of one seed; the first four take less than 4.5 ms per token."""
    spec = load_spec(Path("study.yaml"), text=MANY.format(name=name))
    create_journal(spec, home, BEGIN)
    storage, space = open_journal(home, name), SearchSpace(spec)
    for number in range(configurations):
        params = {"lr": 1e-3 + 8e-3 * number / configurations, "num_loops": 1 + number % 3}
        params |= {"window": 8, "gate_mode": "learned"} if number % 3 else {}
        metrics = {
            "val/bits_per_byte": 2.0 - number / configurations,
            "decode/ms_per_token": 4.0 + number / 10 if number < 4 else 5.0 + number / configurations,
            "kv/bytes_per_sequence": 524288.0 + number,
        }
        attributes = {**asked(resolve(spec, params), 0), "result": result(metrics, BEGIN)}
        trial = create_trial(
            state=optuna.trial.TrialState.COMPLETE,
            values=list(metrics.values()),
            params=params,
            distributions=space.distributions(params),
            user_attrs=attributes,
        )
        storage.create_new_trial(storage.get_study_id_from_name(name), trial)
    return read_study(home, name)
