"""A Ray cluster of two nodes on this machine, the second of which can be killed."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from harness.driver import wait_until
from harness.mlflow_server import free_port

QUICK_TO_NOTICE = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
"""For every process of a cluster, so that a dead node is noticed within seconds."""
NO_TOKEN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
"""For every process of a cluster that is started by hand, and its driver."""


class RayNodes:
    """A head and a second node, with one CPU each."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment, **QUICK_TO_NOTICE, **NO_TOKEN}
        self.address = f"127.0.0.1:{free_port()}"
        head = ["--head", f"--port={self.address.rpartition(':')[2]}", f"--ray-client-server-port={free_port()}"]
        self._start([*head, "--include-dashboard=false", f"--temp-dir={folder}"], "head.txt")
        self._second = self._start([f"--address={self.address}"], "second.txt")

    def kill_second(self) -> None:
        """SIGKILL of its raylet."""
        below = psutil.Process(self._second.pid).children(recursive=True)
        next(process for process in below if process.name() == "raylet").kill()

    def _start(self, options: list[str], log: str) -> subprocess.Popen[bytes]:
        """A `ray start` that stays in the foreground; returns when the node has joined."""
        script = Path(sys.executable).parent / "ray"
        size = ["--num-cpus=1", "--num-gpus=0", "--object-store-memory=83886080", "--node-ip-address=127.0.0.1"]
        with (self._folder / log).open("wb") as file:
            process = subprocess.Popen(
                [script, "start", *options, *size, "--block"], env=self._environment, stdout=file, stderr=file
            )
        wait_until(lambda: b"Ray runtime started" in (self._folder / log).read_bytes(), f"the node of {log}")
        return process


@contextmanager
def two_ray_nodes(environment: Mapping[str, str]) -> Iterator[RayNodes]:
    """The cluster, in a folder with a name that is short enough for its sockets; its processes end with the round."""
    folder = Path(tempfile.mkdtemp(prefix="plt-ray-", dir="/tmp"))
    try:
        yield RayNodes(folder, {**environment, "RAY_TMPDIR": str(folder)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
