"""One real MLflow server for the session, used by one round at a time, because they freeze and kill it."""

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from harness.driver import wait_until

_ENVIRONMENT = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # saves eight processes
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class MlflowServer:
    """On SQLite, in a folder of its own; started when first used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._users = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Its tracking address, the same after a restart."""
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the running server to oneself."""
        with self._users:
            if self._process is None or self._process.poll() is not None:
                self.start()
            yield

    def start(self) -> None:
        """Start it; returns when it answers."""
        self._folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={self._port}", "--workers=1"]
        where = [f"--backend-store-uri=sqlite:///{self._folder}/mlflow.db", f"--artifacts-destination={self._folder}/a"]
        with (self._folder / "server.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *where], env={**os.environ, **_ENVIRONMENT}, stdout=log, stderr=log
            )
        wait_until(self._answers, "an answer of the MLflow server")

    def suspend(self) -> None:
        """SIGSTOP."""
        for process in self._processes():
            process.suspend()

    def resume(self) -> None:
        """SIGCONT."""
        for process in self._processes():
            process.resume()

    def kill(self) -> None:
        """SIGKILL."""
        processes = self._processes()
        for process in processes:
            process.kill()
        psutil.wait_procs(processes)
        if self._process is not None:
            self._process.wait()

    def _processes(self) -> list[psutil.Process]:
        if self._process is None or self._process.poll() is not None:
            return []
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
