"""One driver per study, whatever becomes of the first."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.driver_lock import driver_lock, living_driver
from orchestrator.errors import ServiceError, StudyError
from orchestrator.home import Home

DRIVER = """
import sys
from pathlib import Path
from orchestrator.driver_lock import driver_lock
from orchestrator.home import Home
with driver_lock(Home(Path(sys.argv[1])), "small"):
    print("driving", flush=True)
    sys.stdin.read()
"""


def start_driver(home: Home) -> "subprocess.Popen[str]":
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(home.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "driving\n"
    return driver


def test_a_second_driver_is_refused_and_told_who_the_first_is(home: Home) -> None:
    driver = start_driver(home)
    try:
        name = f"{socket.gethostname()}:{driver.pid}"
        assert living_driver(home, "small") == name
        with pytest.raises(StudyError, match=f"small is being driven by {name}; wait for it or stop it"):
            driver_lock(home, "small").__enter__()
        with driver_lock(home, "other"):
            assert living_driver(home, "other") == f"{socket.gethostname()}:{os.getpid()}"
    finally:
        driver.kill()
        driver.communicate()


def test_a_killed_driver_holds_nothing(home: Home) -> None:
    driver = start_driver(home)
    driver.kill()
    driver.communicate()
    assert living_driver(home, "small") is None
    with driver_lock(home, "small"):
        assert living_driver(home, "small") is not None
    assert living_driver(home, "small") is None


def test_looking_for_a_driver_creates_nothing(home: Home) -> None:
    assert living_driver(home, "small") is None
    assert not home.root.exists()


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("", encoding="utf-8")
    with pytest.raises(ServiceError, match="cannot be written"):
        driver_lock(Home(tmp_path / "home"), "small").__enter__()
