"""Studies on several hosts that lose some of them: nothing is lost, nothing counts twice, nothing late is believed."""

import os
import re
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest
from hosts import Host, until
from ray_hosts import Loss, RayHosts, running

from orchestrator.records import StudyRecord, StudyState, TrialState
from workers.attempt_folder import AttemptFolder

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
resources: {{placement_timeout: {patience}, train: {{cpus: 1{more}}}}}
retry: {{worker_lease: 6s}}
diagnostics: {{sequences: 0}}
"""
Losses = list[tuple[str, ...]]


def write(folder: Path, **values: object) -> str:
    path = folder / "study.yaml"
    path.write_text(STUDY.format(**values), encoding="utf-8")
    return str(path)


def twelve(folder: Path, name: str) -> str:
    """Six configurations with two seeds, one trial at a time on each host."""
    more, rates = ", resources: {place: 1}", [1e-3, 3e-3, 1e-2]
    return write(folder, name=name, tokens="60k", rates=rates, seeds=[0, 1], configurations=6, more=more, patience="1h")


def two(folder: Path, name: str, tokens: str, *, apart: bool = False, patience: str = "1h") -> str:
    """Two trials at once, for which there is room on one host; or `apart`, each on a host of its own."""
    more = ", resources: {place: 1}" if apart else ""
    return write(
        folder, name=name, tokens=tokens, rates=[3e-3], seeds=[0], configurations=2, more=more, patience=patience
    )


def await_training(cluster: RayHosts, study: str) -> None:
    """Until two trials have each reported something and are in the first half of their training."""

    def first_half(trial: int, number: int) -> bool:
        output = AttemptFolder(cluster.home.attempt(study, trial, number)).output
        found = re.findall(r"^step (\d+) of (\d+)", output.read_text(), re.MULTILINE) if output.exists() else []
        return bool(found) and 2 * int(found[-1][0]) <= int(found[-1][1])

    def under_way() -> bool:
        attempts = running(cluster.record(study)) if cluster.has(study) else {}
        return len(attempts) == 2 and all(first_half(trial, one.number) for trial, one in attempts.items())

    until(under_way, f"two trials of {study} under way", 120)


def busy_workers(cluster: RayHosts) -> list[Host]:
    """Hosts on which something is trained."""
    return [host for host in cluster.workers() if host.find("ray::Worker")]


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

    await_training(cluster, "twelve")
    until(lambda: any(trial.state.finished for trial in cluster.record("twelve").trials), "a finished trial", 120)
    await_training(cluster, "twelve")
    victim = cluster.net.hosts["w2"]
    loss = Loss(cluster, "twelve", "a host loses power", victim)
    victim.power_off()
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


@pytest.mark.timeout(300)
def test_what_a_host_that_was_cut_off_goes_on_to_find_out_is_not_read(
    cluster: RayHosts, tmp_path: Path, losses: Losses
) -> None:
    laptop = cluster.laptop("laptop-3")
    assert laptop.plt("submit", two(tmp_path, "cut", "500k"))[0] == 0
    await_training(cluster, "cut")
    victim = busy_workers(cluster)[0]
    loss = Loss(cluster, "cut", "a host is cut off", victim)
    victim.link(False)
    loss.await_notice()
    loss.await_recovery()
    losses.append(loss.row())

    given_up = AttemptFolder(cluster.home.attempt("cut", loss.trial, loss.attempt))
    until(lambda: "ended after" in given_up.output.read_text(), "end of the attempt that was given up", 120)
    assert (given_up.model / "model.safetensors").exists()
    victim.link(True)
    record = finished(cluster, "cut", 2)
    lost, *_, last = next(trial for trial in record.trials if trial.number == loss.trial).attempts
    assert lost.failure is not None
    assert lost.failure["reason"] == "worker_lost"
    assert "versions" not in lost.info  # only an outcome has them
    assert lost.info["node"] == f"{victim.name} ({victim.ip})"
    assert last.info["node"] != lost.info["node"]
    assert cluster.runs("cut") == Counter({"FINISHED": 3})


@pytest.mark.timeout(300)
def test_attempts_leave_a_machine_that_is_taken_away_with_a_saved_state(
    cluster: RayHosts, tmp_path: Path, losses: Losses
) -> None:
    cluster.replace_lost_workers(3)
    laptop = cluster.laptop("laptop-4")
    assert laptop.plt("submit", two(tmp_path, "preempted", "800k", apart=True))[0] == 0
    await_training(cluster, "preempted")
    one, other = busy_workers(cluster)
    told = Loss(cluster, "preempted", "a worker is told to go (SIGTERM)", one)
    os.kill(one.find("ray::Worker")[0], signal.SIGTERM)
    drained = Loss(cluster, "preempted", "a host is drained, then off", other)
    cluster.drain(other, seconds=60)
    for loss in (told, drained):
        loss.await_notice()
    other.power_off()
    for loss in (told, drained):
        loss.await_recovery()
        losses.append(loss.row())
    record = finished(cluster, "preempted", 2)
    for loss in (told, drained):
        found = re.fullmatch(
            r"preempted: the machine is being taken away; a state was saved at step (\d+) of (\d+)", loss.message
        )
        assert found is not None, loss.message
        after = next(trial for trial in record.trials if trial.number == loss.trial).attempts[loss.attempt]
        assert after.info["resumed"] == {"step": int(found[1]), "from": f"attempt-{loss.attempt}"}
    assert f"{other.name} ({other.ip})" not in {trial.attempts[-1].info["node"] for trial in record.trials}


@pytest.mark.timeout(300)
def test_a_study_is_driven_once_whatever_ray_says_of_its_job(cluster: RayHosts, tmp_path: Path) -> None:
    cluster.replace_lost_workers()
    laptop = cluster.laptop("laptop-5")
    assert laptop.plt("submit", two(tmp_path, "driven", "1M"))[0] == 0
    await_training(cluster, "driven")
    above = psutil.Process(cluster.head.find("orchestrator.main run")[0]).parents()
    next(process for process in above if "ray::JobSupervisor" in process.cmdline()[0]).kill()
    until(lambda: cluster.job("plt-driven-1") == "FAILED", "job that Ray has lost sight of")
    until(lambda: cluster.record("driven").driver is None, "end of the first driver")

    another = cluster.drive_on("driven")  # as a driver does that outlives its job
    until(lambda: cluster.record("driven").driver is not None, "second driver")
    driver = cluster.record("driven").driver
    assert laptop.plt("resume", "driven") == (0, "driven: being driven by job plt-driven-1\n")
    assert cluster.record("driven").driver == driver
    assert laptop.status("driven")["state"] == "RUNNING"
    another.kill()
    until(lambda: cluster.record("driven").driver is None, "end of the second driver")
    assert laptop.plt("resume", "driven") == (0, "driven: driven by job plt-driven-2\n")
    until(lambda: cluster.record("driven").driver is not None, "third driver")
    until(lambda: cluster.record("driven").state is not StudyState.RUNNING, "end of driven", 150)
    record = cluster.record("driven")
    assert [trial.state.value for trial in record.trials] == ["COMPLETE", "COMPLETE"]
    assert {one.failure["reason"] for trial in record.trials for one in trial.attempts if one.failure} == {
        "driver_lost"
    }


@pytest.mark.skipif(not os.environ.get("PLT_HOSTS_ALL"), reason="waits for half a minute; PLT_HOSTS_ALL=1 runs it")
@pytest.mark.timeout(300)
def test_without_any_host_a_study_says_what_it_waits_for_and_is_interrupted_after_a_time(
    cluster: RayHosts, tmp_path: Path
) -> None:
    cluster.replace_lost_workers()
    laptop = cluster.laptop("laptop-6")
    assert laptop.plt("submit", two(tmp_path, "alone", "800k", patience="25s"))[0] == 0
    await_training(cluster, "alone")
    for host in cluster.workers():
        host.power_off()
    until(lambda: "waiting for a node with 1 CPUs" in (cluster.queued_because("alone") or ""), "what it waits for")
    until(lambda: cluster.record("alone").driver is None, "end of the driver")
    record = cluster.record("alone")
    assert record.state is StudyState.INTERRUPTED
    assert Counter(trial.state for trial in record.trials) == {TrialState.WAITING: 2}
    code, said = laptop.plt("logs", "alone")
    assert code == 0
    assert "no node had 1 CPUs and 0 GPUs for 25 s, see resources.placement_timeout" in said
