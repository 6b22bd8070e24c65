"""The dashboard's command line, a port in use, and a server that really starts with it."""

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.launch import command
from orchestrator.errors import ServiceError
from orchestrator.home import Home


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("localhost", 0))
        holder.listen(1)
        yield int(holder.getsockname()[1])


def test_it_listens_where_it_was_told_and_sends_no_statistics(home: Home, free_port: int) -> None:
    arguments, environment = command("localhost", free_port, home)
    assert arguments[:4] == [sys.executable, "-m", "streamlit", "run"]
    assert Path(arguments[4]).name == "app.py"
    flags = dict(zip(arguments[5::2], arguments[6::2], strict=True))
    assert flags["--server.address"] == "localhost"
    assert flags["--server.port"] == str(free_port)
    assert flags["--browser.gatherUsageStats"] == "false"
    assert environment == {"PLT_HOME": str(home.root), "PLT_DASHBOARD_READ_ONLY": "0", "MALLOC_ARENA_MAX": "2"}
    _, shared = command("localhost", free_port, home, read_only=True, ray_dashboard="http://head:8265")
    assert (shared["PLT_DASHBOARD_READ_ONLY"], shared["PLT_RAY_DASHBOARD"]) == ("1", "http://head:8265")


def test_a_port_in_use_is_said_in_one_line(home: Home, busy_port: int) -> None:
    with pytest.raises(ServiceError, match=rf"cannot listen on localhost:{busy_port} .*--port") as caught:
        command("localhost", busy_port, home)
    assert "\n" not in str(caught.value)


def test_a_host_that_is_not_ours_is_said(home: Home, free_port: int) -> None:
    with pytest.raises(ServiceError, match=r"cannot listen on 192\.0\.2\.1"):
        command("192.0.2.1", free_port, home)


@pytest.mark.slow
def test_the_server_starts_with_these_flags(home: Home, free_port: int) -> None:
    arguments, environment = command("localhost", free_port, home)
    server = subprocess.Popen(
        [*arguments, "--server.headless", "true"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if "URL" in line:
                break
        with urllib.request.urlopen(f"http://localhost:{free_port}/_stcore/health", timeout=10) as answer:
            assert answer.read() == b"ok"
    finally:
        server.terminate()
        server.wait(10)
