"""Planted secrets under a study: they open the services they are for, and nobody finds them afterwards."""

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.home import Home
from orchestrator.studies import list_studies
from tests.services import Postgres, answers, free_port

USER, PASSWORD = "planted-user", "planted-password-15"
PLANTED = {
    "MLFLOW_TRACKING_USERNAME": USER,
    "MLFLOW_TRACKING_PASSWORD": PASSWORD,
    "RAY_AUTH_TOKEN": "planted-ray-token",
    "AWS_SECRET_ACCESS_KEY": "planted-aws-key",
}
STUDY = """\
name: secrets
model: {variant: plt, d_model: 16, num_layers: 1, num_heads: 2, num_kv_heads: 2, window: 8}
data: {corpus: phop, seq_len: 16, eval_sequences: 8}
train: {tokens: 512, batch_size: 4, precision: float32, compile: off, evaluations: 1}
search:
  lr: {choices: [0.001, 1.0e+30]}
objectives:
  - {metric: tasks/phop/accuracy, direction: maximize}
sampler: {name: grid}
budget: {configurations: 2}
"""
"""The second configuration diverges, so that a failure is told, too."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an MLflow server that wants a user and a password."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    sign_in = (
        f"[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{folder}/users.db\n"
        f"admin_username = {USER}\nadmin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    (folder / "sign-in.ini").write_text(sign_in, encoding="utf-8")
    where = [f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--artifacts-destination={folder}/files"]
    with (folder / "server.txt").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mlflow",
                "server",
                "--app-name=basic-auth",
                f"--port={port}",
                "--workers=1",
                *where,
            ],
            env=os.environ
            | {
                "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-the-server",
                "MLFLOW_AUTH_CONFIG_PATH": str(folder / "sign-in.ini"),
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                "MLFLOW_DISABLE_TELEMETRY": "true",
            },
            stdout=log,
            stderr=log,
        )
    try:
        assert answers(f"http://127.0.0.1:{port}/health", 120), (folder / "server.txt").read_text(encoding="utf-8")
        yield port
    finally:
        process.terminate()
        process.wait()


class Commands:
    """Runs `plt` in a home, and keeps what it printed and which arguments its processes had."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.home = folder / "home"
        self.said = ""
        self._study = folder / "study.yaml"
        self._study.write_text(STUDY, encoding="utf-8")
        unsigned = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_TRACKING")}
        self._environment = {**unsigned, "PLT_HOME": str(self.home), **environment}

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """Exit code and all that was printed; `study.yaml` stands for the study file."""
        resolved = [str(self._study) if one == "study.yaml" else one for one in arguments]
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.main", *resolved],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        watch = threading.Thread(target=self._watch, args=(process,))
        watch.start()
        printed, _ = process.communicate(timeout=200)
        watch.join()
        self.said += printed
        return process.returncode, printed

    def _watch(self, process: subprocess.Popen[str]) -> None:
        """Anybody on the machine may read the arguments of a process."""
        while process.poll() is None:
            try:
                family = [started := psutil.Process(process.pid), *started.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for one in family:
                try:
                    self.said += " ".join(one.cmdline()) + "\n"
                except psutil.Error:
                    continue
            time.sleep(0.05)


@pytest.mark.slow
def test_a_wrong_password_is_told_with_its_remedy_before_anything_is_made(server: int, tmp_path: Path) -> None:
    address = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{server}"}
    wrong = Commands(tmp_path, address | {"MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": "another"})
    code, printed = wrong("doctor")
    assert code == 1
    assert "it does not know this user and password; set MLFLOW_TRACKING_USERNAME" in printed
    code, printed = wrong("run", "study.yaml", "--backend", "local")
    assert code == 2
    (line,) = printed.splitlines()
    assert line.startswith(
        f"plt: MLflow at {address['MLFLOW_TRACKING_URI']} cannot be used: it does not know this user"
    )
    assert list_studies(Home(wrong.home)) == []
    assert "another" not in wrong.said


@pytest.mark.slow
@pytest.mark.parametrize("where", ["variables", "address"])
def test_no_secret_is_found_afterwards(
    server: int, postgres: Postgres, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, where: str
) -> None:
    """In what was printed, in arguments, in home and database, in runs and artifacts that MLflow shows every reader."""
    user = f"{USER}:{PASSWORD}@" if where == "address" else ""
    name = f"secrets_in_{where}"
    storage = {"PLT_STORAGE": postgres.make(name), "PGPASSWORD": postgres.PASSWORD}
    if user:
        storage = {"PLT_STORAGE": postgres.with_password(name)}
    tracking = {"MLFLOW_TRACKING_URI": f"http://{user}127.0.0.1:{server}"} | ({} if user else PLANTED)
    plt = Commands(tmp_path, tracking | storage)
    code, printed = plt("run", "study.yaml", "--backend", "local")
    assert code == 0, printed
    for arguments in (["status", "secrets"], ["logs", "secrets/1"], ["export", "secrets"], ["status", "none"]):
        plt(*arguments)
    assert "ok   studies: 1 in the database postgresql://127.0.0.1" in plt("doctor")[1]
    away = Commands(tmp_path, tracking | storage | {"PLT_STORAGE": postgres.with_password(f"not_{name}")})
    assert away("status", "secrets")[0] == 2
    plt.said += away.said
    told = plt.said.replace(str(tmp_path), "")
    artifacts = tmp_path_factory.getbasetemp().glob("server*/files/**/*")
    files = {path: path.read_bytes() for path in (*plt.home.rglob("*"), *artifacts) if path.is_file()}
    assert "spec.json" in {path.name for path in files}
    with postgres.connect(name) as connection:
        rows = connection.execute("select s.*, j.* from plt_study s join plt_journal j on j.study = s.id").fetchall()
    assert len(rows) > 10
    runs = search_runs(server)
    assert "plt.trial" in runs
    for secret in (USER, postgres.USER, postgres.PASSWORD, *PLANTED.values()):
        assert secret not in told
        assert secret not in str(rows)
        assert secret not in runs
        assert not [path for path, content in files.items() if secret.encode() in content]


def search_runs(server: int) -> str:
    """Every run of the server as it shows them."""
    manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    manager.add_password(None, f"http://127.0.0.1:{server}", USER, PASSWORD)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
    request = urllib.request.Request(
        f"http://127.0.0.1:{server}/api/2.0/mlflow/runs/search",
        data=b'{"experiment_ids": ["0", "1", "2", "3"], "max_results": 1000}',
        headers={"Content-Type": "application/json"},
    )
    with opener.open(request, timeout=30) as answer:
        text: str = answer.read().decode()
    return text
