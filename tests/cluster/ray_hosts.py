"""A Ray cluster on hosts of its own, a folder that they share, and laptops that know only its address and its token."""

import json
import os
import secrets
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hosts import Host, Net, until

from orchestrator.home import Home
from orchestrator.live_state import read_live
from orchestrator.records import AttemptRecord, StudyRecord
from orchestrator.studies import read_study
from workers.attempt_folder import AttemptFolder

HEALTH_CHECKS = {
    "default": {},
    "short": {
        "RAY_health_check_initial_delay_ms": "500",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "500",
        "RAY_health_check_failure_threshold": "2",
    },
}
"""How often the head looks after its nodes: as Ray ships, and so that it gives one up within two seconds."""
_NOT_NEEDED_BY_WORKERS = ("optuna", "mlflow", "streamlit", "plotly", "sqlalchemy", "scipy", "moocore", "pandas")
_BIN = Path(sys.executable).parent
_SIZE = ("--num-gpus=0", "--object-store-memory=80000000", "--block")


class RayHosts:
    """A head that drives and runs nothing else, and workers with two CPUs each."""

    def __init__(self, folder: Path, health: Mapping[str, str]) -> None:
        self.net, self.folder, self.home = Net(), folder, Home(folder / "home")
        here = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_", "PLT_"))}
        self._environment = {
            **here,
            "PATH": f"{_BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self._health = dict(health)
        self._worn = 0
        """Workers so far."""
        self.head = self.net.host("head", self._environment)
        self.address = f"http://{self.head.ip}:8265"
        self.start_head()

    def start_head(self) -> None:
        """Start Ray there, without waiting for it."""
        where = [f"--node-ip-address={self.head.ip}", f"--dashboard-host={self.head.ip}", "--port=6379"]
        self._ray(self.head, "--head", *where, "--num-cpus=0")

    def worker(self, name: str) -> Host:
        """A new host that joins; it has what `workers` needs and no more. Does not wait for it."""
        self._worn += 1
        packages = Path(sysconfig.get_paths()["purelib"])
        host = self.net.host(name, self._environment, [packages / one for one in _NOT_NEEDED_BY_WORKERS])
        self._ray(
            host,
            f"--address={self.head.ip}:6379",
            f"--node-ip-address={host.ip}",
            "--num-cpus=2",
            '--resources={"place":1}',
        )
        return host

    def await_start(self, host: Host) -> None:
        """Wait until its part of the cluster is up."""
        until(lambda: "Ray runtime started" in self.log(host.name), f"Ray on {host.name}", 120)

    def workers(self) -> list[Host]:
        """Hosts that are workers now."""
        return [host for name, host in self.net.hosts.items() if name.startswith("w")]

    def replace_lost_workers(self, wanted: int = 2) -> None:
        """Have so many of them again; one whose raylet has ended is taken out."""
        for host in self.workers():
            if not host.find("raylet/raylet"):
                host.power_off()
        new = [self.worker(f"w{self._worn + 1}") for _ in range(len(self.workers()), wanted)]
        for host in new:
            self.await_start(host)

    def drain(self, host: Host, seconds: int) -> None:
        """Tell Ray that a host will be gone in so many seconds, as a spot instance's notice would."""
        why = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot"]
        command = [str(_BIN / "ray"), "drain-node", f"--address={self.head.ip}:6379", *why]
        done = host.start([*command, f"--deadline-remaining-seconds={seconds}"], self.folder / f"{host.name}.log")
        assert done.wait(timeout=60) == 0, self.log(host.name)

    def laptop(self, name: str) -> "Laptop":
        """A host that is no part of the cluster and does not see its storage."""
        environment = {**self._environment, "PLT_HOME": f"/tmp/ray/{name}", "PLT_CLUSTER_HOME": str(self.home.root)}
        self.home.root.mkdir(exist_ok=True)
        return Laptop(self.net.host(name, environment, [self.home.root]), self.address, self.folder)

    def has(self, study: str) -> bool:
        """Whether there is a study of that name yet."""
        return self.home.journal(study).exists() and bool(read_study(self.home, study).trials)

    def record(self, study: str) -> StudyRecord:
        """What the study's storage says."""
        return read_study(self.home, study)

    def queued_because(self, study: str) -> str | None:
        """What its attempts wait for."""
        live = read_live(self.home.live(study))
        return None if live is None else live.queued_because

    def drive_on(self, study: str) -> "subprocess.Popen[bytes]":
        """Drive a study on the head's host, by nobody's job."""
        command = [str(_BIN / "plt"), "resume", study, "--address", f"{self.head.ip}:6379"]
        return self.head.start(command, self.folder / "driver.log", {"PLT_HOME": str(self.home.root)})

    def runs(self, study: str) -> "Counter[str]":
        """The study's runs in MLflow, by status."""
        from mlflow.tracking import MlflowClient

        client = MlflowClient(f"sqlite:///{self.home.root / 'mlflow.db'}")
        experiment = client.get_experiment_by_name(study)
        assert experiment is not None
        return Counter(run.info.status for run in client.search_runs([experiment.experiment_id]))

    def job(self, name: str) -> str:
        """What Ray says of a job."""
        output = self.folder / f"{name}.txt"
        output.unlink(missing_ok=True)
        asked = f"JobSubmissionClient('{self.address}').get_job_status('{name}').value"
        script = f"from ray.job_submission import JobSubmissionClient; print({asked})"
        assert self.head.start([sys.executable, "-c", script], output).wait(timeout=60) == 0, output.read_text()
        return output.read_text().split()[-1]

    def log(self, name: str) -> str:
        """What Ray said on a host."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        """End every host."""
        self.net.close()

    def _ray(self, host: Host, *options: str) -> None:
        host.start([str(_BIN / "ray"), "start", *options, *_SIZE], self.folder / f"{host.name}.log", self._health)


class Laptop:
    """Somebody's machine."""

    def __init__(self, host: Host, address: str, folder: Path) -> None:
        self.host, self._address, self._folder = host, address, folder
        self._commands = 0

    def plt(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of a command about the cluster's studies."""
        self._commands += 1
        output = self._folder / f"{self.host.name}-{self._commands}.txt"
        command = [str(_BIN / "plt"), *arguments, "--address", self._address]
        code = self.host.start(command, output).wait(timeout=120)
        return code, output.read_text()

    def status(self, study: str) -> dict[str, Any]:
        """What `plt status --json` says of a study."""
        code, text = self.plt("status", study, "--json")
        assert code == 0, text
        found: dict[str, Any] = json.loads(text)
        return found


def running(record: StudyRecord) -> dict[int, AttemptRecord]:
    """The attempt that runs of each trial, by trial number."""
    latest = {trial.number: trial.attempts[-1] for trial in record.trials if trial.attempts}
    return {number: attempt for number, attempt in latest.items() if attempt.ended is None}


class Loss:
    """What a fault that happens now costs a study's trials: call it just before."""

    def __init__(self, cluster: RayHosts, study: str, what: str, host: Host) -> None:
        """`host` is where it happens."""
        self._cluster, self._study, self._what = cluster, study, what
        self._node = f"{host.name} ({host.ip})"
        self._before, self._began = self._failures(), datetime.now(UTC)
        self._noticed = self._again = 0.0
        self.trial, self.attempt = -1, 0
        """Which attempt was lost."""
        self.message = ""
        """What is recorded of it."""

    def await_notice(self, seconds: float = 90.0) -> None:
        """Until the driver has recorded that an attempt was lost."""
        until(lambda: self._failures() != self._before, f"notice that {self._what}", seconds)
        trial, number = min(self._failures().keys() - self._before.keys())
        lost = self._failures()[trial, number]
        assert lost.ended is not None
        assert lost.failure is not None
        self.trial, self.attempt = trial, number
        self._noticed = (lost.ended - self._began).total_seconds()
        self.message = f"{lost.failure['reason']}: {lost.failure['message']}"

    def await_recovery(self, seconds: float = 90.0) -> None:
        """Until the lost trial runs as its next attempt."""
        output = AttemptFolder(self._cluster.home.attempt(self._study, self.trial, self.attempt + 1)).output
        until(output.exists, f"next attempt of trial {self.trial}", seconds)
        self._again = (datetime.now(UTC) - self._began).total_seconds()

    def row(self) -> tuple[str, ...]:
        """Of the table of losses."""
        return self._what, f"{self._noticed:.1f}", f"{self._again:.1f}", self.message

    def _failures(self) -> dict[tuple[int, int], AttemptRecord]:
        trials = self._cluster.record(self._study).trials
        every = {(trial.number, one.number): one for trial in trials for one in trial.attempts}
        return {
            key: one
            for key, one in every.items()
            if one.failure is not None and one.info.get("node", self._node) == self._node
        }
