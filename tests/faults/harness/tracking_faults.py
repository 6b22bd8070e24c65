"""What happens to MLflow and to the disk: a database that is locked, a server that freezes or dies, no room."""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.driver import Driver, wait_until
from harness.round import Round

DISK_BYTES = 8 * 1024 * 1024
_PAUSED = "make room"
"""What a driver says while it waits for room."""


def database_locked(round_: Round) -> None:
    """Another process holds MLflow's database for some seconds: the study goes on, and all of it arrives."""
    driver = round_.start()
    round_.await_moment(driver)
    round_.keep()
    database = sqlite3.connect(round_.place.home.root / "mlflow.db", timeout=30, isolation_level=None)
    try:
        database.execute("BEGIN EXCLUSIVE")
        time.sleep(round_.random.uniform(2, 6))
        database.execute("ROLLBACK")
    finally:
        database.close()
    round_.expect_exit(driver, 0)


def server_frozen(round_: Round) -> None:
    """MLflow's server does not answer for some seconds: the study goes on, and all of it arrives."""
    driver = _begin_at_server(round_)
    round_.server.suspend()
    try:
        time.sleep(round_.random.uniform(4, 6))
    finally:
        round_.server.resume()
    round_.expect_exit(driver, 0)


def server_killed(round_: Round) -> None:
    """MLflow's server is killed and started again; what the driver could not deliver, the next one does."""
    driver = _begin_at_server(round_)
    round_.server.kill()
    time.sleep(round_.random.uniform(0, 4))
    round_.server.start()
    round_.expect_exit(driver, 0)
    round_.finish()


def disk_full(round_: Round) -> None:
    """No room where the study is kept: the driver pauses, says so, and goes on by itself when there is room again."""
    round_.resources.enter_context(_small_disk(round_.place.home.root))
    driver = round_.start()
    round_.await_moment(driver)
    filler = round_.place.home.root / "filler"
    driver.send(signal.SIGSTOP)  # a small study may be over before its disk is full
    round_.keep()
    _fill(filler)
    driver.send(signal.SIGCONT)
    wait_until(lambda: _fill(filler) or driver.ended() or _PAUSED in driver.said(), "the driver's word of a full disk")
    time.sleep(round_.random.uniform(0, 3))
    filler.unlink()
    round_.expect_exit(driver, 0)
    round_.expect(_PAUSED in driver.said(), f"the driver does not say that the disk is full: {driver.said()[-1500:]}")
    round_.points_may_miss = "could not be kept for MLflow" in driver.said()


def _begin_at_server(round_: Round) -> Driver:
    """A driver that tracks at the server, at a random moment."""
    round_.resources.enter_context(round_.server.alone())
    round_.track_at(round_.server.uri)
    driver = round_.start()
    round_.await_moment(driver)
    round_.keep()
    return driver


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A disk of its own, of a few megabytes, with what the folder holds."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        for path, content in files.items():
            (folder / path).write_bytes(content)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _fill(path: Path) -> bool:
    """Write until there is no room; files that shrink give some back, so it is called again and again; never true."""
    block = b"\0" * 65536
    with path.open("ab", buffering=0) as file:
        while block:
            try:
                file.write(block)
            except OSError:
                block = block[: len(block) // 2]
    return False
