"""Studies submitted to a real Ray cluster through its Jobs API, by real commands; nobody here sees its storage."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.home import Home
from orchestrator.records import StudyState
from orchestrator.studies import read_study

STUDY = """\
name: submitted
model: {variant: plt, d_model: 16, num_layers: 1, num_heads: 2, num_kv_heads: 2, window: 8}
data: {corpus: phop, seq_len: 16, eval_sequences: 8}
train: {tokens: 400k, batch_size: 4, precision: float32, compile: off, evaluations: 4}
search:
  num_loops: {choices: [1, 2]}
objectives:
  - {metric: tasks/phop/accuracy, direction: maximize}
sampler: {name: grid}
budget: {configurations: 2}
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody does on this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Cluster:
    """A head whose dashboard listens, and the home on its storage."""

    address: str
    home: Path
    environment: dict[str, str]

    def plt(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A command of a machine that is not part of the cluster."""
        there = ["--address", self.address, "--home", str(self.home)]
        return subprocess.run(
            [sys.executable, "-m", "orchestrator.main", *arguments, *there],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
            env=self.environment,
        )

    def status(self, name: str) -> dict[str, object]:
        """What `plt status --json` says there."""
        done = self.plt("status", name, "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        stand: dict[str, object] = json.loads(done.stdout)
        return stand


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node with two CPUs; its folder has a name that is short enough for Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="plt-jobs-", dir="/tmp"))
    port, dashboard = free_port(), free_port()
    here = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_", "PLT_"))}
    environment = {
        **here,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PLT_HOME": str(tmp_path_factory.mktemp("client") / "home"),
    }
    options = [f"--port={port}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={free_port()}"]
    options.append(f"--dashboard-agent-listen-port={free_port()}")
    size = ["--num-cpus=2", "--num-gpus=0", "--object-store-memory=83886080", "--node-ip-address=127.0.0.1"]
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(
            [Path(sys.executable).parent / "ray", "start", "--head", *options, *size, "--block"],
            env={**environment, "RAY_TMPDIR": str(folder)},
            stdout=log,
            stderr=log,
        )
    try:
        until = time.monotonic() + 180
        while not listens(dashboard) and time.monotonic() < until:
            time.sleep(0.2)
        yield Cluster(f"http://127.0.0.1:{dashboard}", tmp_path_factory.mktemp("cluster") / "home", environment)
    finally:
        head.send_signal(signal.SIGTERM)
        head.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def test_a_submitted_study_survives_its_client_is_asked_from_afar_and_resumed(cluster: Cluster, study: Path) -> None:
    following = [sys.executable, "-m", "orchestrator.main", "submit", str(study), "--follow"]
    there = ["--address", cluster.address, "--home", str(cluster.home)]
    with subprocess.Popen([*following, *there], stdout=subprocess.PIPE, text=True, env=cluster.environment) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "submitted\n"
        client.kill()

    again = cluster.plt("submit", str(study))
    assert (again.returncode, again.stdout) == (0, "submitted\n")
    assert "being driven already by job plt-submitted-1;" in again.stderr
    study.write_text(STUDY.replace("400k", "500k"), encoding="utf-8")
    other = cluster.plt("submit", str(study))
    assert other.returncode == 2
    assert "is being driven by job plt-submitted-1 from another file" in other.stderr
    assert other.stderr.count("\n") == 1

    while (stopped := cluster.plt("stop", "submitted")).returncode:
        assert "there is no study" in stopped.stdout or "nobody drives" in stopped.stdout, stopped.stdout
    assert "submitted: stopping" in stopped.stdout
    while cluster.status("submitted")["state"] == "RUNNING":
        pass
    assert cluster.status("submitted")["state"] == "INTERRUPTED"

    resumed = cluster.plt("resume", "submitted")
    assert (resumed.returncode, resumed.stdout) == (0, "submitted: driven by job plt-submitted-2\n")
    printed = cluster.plt("logs", "submitted").stdout
    assert "trial 0 (seed 0, attempt 2)" in printed
    record = read_study(Home(cluster.home), "submitted")
    assert record.state is StudyState.COMPLETE
    assert [trial.state.value for trial in record.trials] == ["COMPLETE", "COMPLETE"]
    assert cluster.status("submitted")["state"] == "COMPLETE"
    assert not Path(cluster.environment["PLT_HOME"]).exists()


def test_what_cannot_be_asked_is_refused_in_one_line(cluster: Cluster, study: Path) -> None:
    unknown = cluster.plt("status", "nothing")
    assert unknown.returncode == 2
    assert "there is no study" in unknown.stdout
    nobody = f"http://127.0.0.1:{free_port()}"
    commands = [
        ["submit", str(study), "--address", nobody, "--home", "/x"],
        ["submit", str(study), "--address", cluster.address],
        ["submit", str(study.with_name("missing.yaml")), "--address", cluster.address, "--home", "/x"],
    ]
    words = [f"the cluster's Jobs API at {nobody} cannot be used", "needs --home", "missing.yaml"]
    for arguments, said in zip(commands, words, strict=True):
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.main", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=cluster.environment,
        )
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    without_token = {**cluster.environment, "RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.main", *commands[0][:2], "--address", cluster.address, "--home", "/x"],
        capture_output=True,
        text=True,
        check=False,
        env=without_token,
    )
    assert done.returncode == 2
    assert "RAY_AUTH_TOKEN" in done.stderr
    assert "0" * 64 not in done.stderr
