"""Studies on several hosts that lose some of them: nothing is lost, nothing counts twice, nothing late is believed."""

from collections import Counter
from pathlib import Path

import pytest
from hosts import until
from ray_hosts import Loss, RayHosts, running

from orchestrator.records import StudyRecord, StudyState, TrialState

STUDY = """\
name: {name}
model: {{variant: plt, d_model: 16, num_layers: 1, num_heads: 2, num_kv_heads: 2, window: 8}}
data: {{corpus: phop, seq_len: 32, eval_sequences: 16}}
train: {{tokens: {tokens}, batch_size: 8, precision: float32, compile: off, evaluations: 8}}
search:
  num_loops: {{choices: [1, 2]}}
  lr: {{choices: {rates}}}
seeds: {seeds}
replicate: all
objectives: [{{metric: val/loss, direction: minimize}}]
sampler: {{name: grid}}
budget: {{configurations: {configurations}}}
resources: {{train: {{cpus: {cpus}}}}}
retry: {{worker_lease: 6s}}
diagnostics: {{sequences: 0}}
"""
Losses = list[tuple[str, ...]]


def write(folder: Path, **values: object) -> str:
    path = folder / "study.yaml"
    path.write_text(STUDY.format(**values), encoding="utf-8")
    return str(path)


def twelve(folder: Path, name: str) -> str:
    """Six configurations with two seeds, two trials at once."""
    rates = [1e-3, 3e-3, 1e-2]
    return write(folder, name=name, tokens="60k", rates=rates, seeds=[0, 1], configurations=6, cpus=2)


def finished(cluster: RayHosts, study: str, trials: int) -> StudyRecord:
    """The study's record once it is complete; every trial is accounted for exactly once."""
    until(lambda: cluster.record(study).state is not StudyState.RUNNING, f"end of {study}", 150)
    record = cluster.record(study)
    assert record.state is StudyState.COMPLETE, record.message
    assert Counter(trial.state for trial in record.trials) == {TrialState.COMPLETE: trials}
    assert len({(trial.configuration, trial.seed) for trial in record.trials}) == trials
    for trial in record.trials:
        assert [attempt.number for attempt in trial.attempts] == list(range(1, len(trial.attempts) + 1))
        assert [attempt.failure is None for attempt in trial.attempts] == [False] * (len(trial.attempts) - 1) + [True]
        assert all(attempt.ended is not None for attempt in trial.attempts)
    return record


@pytest.mark.timeout(300)
def test_a_study_outlives_who_submitted_it_and_a_host_that_dies(
    cluster: RayHosts, tmp_path: Path, losses: Losses
) -> None:
    submitting = cluster.laptop("laptop-1")
    code, said = submitting.plt("submit", twelve(tmp_path, "twelve"))
    assert (code, said.splitlines()[0]) == (0, "twelve")
    submitting.host.power_off()

    until(lambda: cluster.has("twelve") and len(running(cluster.record("twelve"))) == 2, "two trials at once", 120)
    until(lambda: any(trial.state.finished for trial in cluster.record("twelve").trials), "a finished trial", 120)
    until(lambda: len(running(cluster.record("twelve"))) == 2, "two trials at once")
    loss = Loss(cluster, "twelve", "a host loses power")
    cluster.net.hosts["w2"].power_off()
    loss.await_notice()
    cluster.worker("w3")
    loss.await_recovery()
    losses.append(loss.row())

    record = finished(cluster, "twelve", 12)
    asking = cluster.laptop("laptop-2")
    status = asking.status("twelve")
    assert (status["state"], status["trials"]["COMPLETE"]) == ("COMPLETE", 12)
    code, said = asking.plt("logs", "twelve")
    assert code == 0
    assert f"trial {record.trials[0].number} done: val/loss" in said
    assert "12 COMPLETE" in said
