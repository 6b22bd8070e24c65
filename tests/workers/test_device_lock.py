"""The device lock between real processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers.device_lock import DeviceLock

CHILD = """
import sys
from pathlib import Path
from workers.device_lock import DeviceLock
lock = DeviceLock("gpu0", Path(sys.argv[1]))
def say(word):
    print(word, flush=True)
with getattr(lock, sys.argv[2])() as hold:
    say("held")
    for line in sys.stdin:
        if line.strip() == "step":
            if hold.is_wanted():
                hold.release()
                hold.acquire()
            say("stepped")
        else:
            break
say("released")
"""


class Child:
    """A process that holds the lock, steps when told to, and says what it did."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Child]]:
    children: list[Child] = []

    def begin(mode: str) -> Child:
        children.append(Child(tmp_path, mode))
        return children[-1]

    yield begin
    for child in children:
        child.kill()


@pytest.fixture
def waits() -> Callable[[Child], None]:
    """Until the kernel lists the process as blocked on a file lock."""

    def until_blocked(child: Child) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            locks = Path("/proc/locks").read_text().splitlines()
            if any("->" in line and f" {child.process.pid} " in line for line in locks):
                return
        raise AssertionError("the process never waited for the lock")

    return until_blocked


def test_many_share(start: Callable[[str], Child]) -> None:
    children = [start("shared") for _ in range(3)]
    assert [child.hear() for child in children] == ["held"] * 3


def test_a_waiting_benchmark_goes_before_the_next_step(
    start: Callable[[str], Child], waits: Callable[[Child], None]
) -> None:
    trials = [start("shared"), start("shared")]
    for trial in trials:
        assert trial.hear() == "held"
        trial.tell("step")
        assert trial.hear() == "stepped"  # nobody waits: at once
    benchmark = start("exclusive")
    waits(benchmark)
    late = start("shared")
    waits(late)  # a trial that comes later does not overtake
    trials[0].tell("step")
    waits(trials[0])  # one trial has let go, the other still has the device
    trials[1].tell("step")
    assert benchmark.hear() == "held"
    waits(trials[1])
    benchmark.tell("end")
    assert benchmark.hear() == "released"
    assert [trial.hear() for trial in trials] == ["stepped", "stepped"]
    assert late.hear() == "held"


def test_benchmarks_are_alone(start: Callable[[str], Child], waits: Callable[[Child], None]) -> None:
    first = start("exclusive")
    assert first.hear() == "held"
    second = start("exclusive")
    waits(second)
    first.tell("end")
    assert second.hear() == "held"


@pytest.mark.parametrize(("holder", "next_mode"), [("exclusive", "shared"), ("shared", "exclusive")])
def test_a_killed_process_releases(
    holder: str, next_mode: str, start: Callable[[str], Child], waits: Callable[[Child], None]
) -> None:
    dead = start(holder)
    assert dead.hear() == "held"
    waiting = start(next_mode)
    waits(waiting)
    dead.kill()
    assert waiting.hear() == "held"


def test_a_benchmark_killed_while_waiting_holds_nobody_up(
    start: Callable[[str], Child], waits: Callable[[Child], None]
) -> None:
    trial = start("shared")
    assert trial.hear() == "held"
    benchmark = start("exclusive")
    waits(benchmark)
    benchmark.kill()
    trial.tell("step")
    assert trial.hear() == "stepped"
    assert start("shared").hear() == "held"


def test_devices_are_independent(tmp_path: Path) -> None:
    with DeviceLock("gpu0", tmp_path).exclusive(), DeviceLock("gpu1", tmp_path).exclusive():
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            f"gpu{number}.{part}" for number in (0, 1) for part in ("device", "turnstile")
        ]


def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    lock, order = DeviceLock("cpu", tmp_path), []

    def benchmark() -> None:
        with lock.exclusive():
            order.append("benchmark")

    with lock.shared() as hold:
        thread = threading.Thread(target=benchmark)
        thread.start()
        while not order:  # the benchmark gets in through a yield, and only so
            if hold.is_wanted():
                hold.release()
                hold.acquire()
        order.append("step")
    thread.join()
    assert order == ["benchmark", "step"]


def test_the_default_folder_is_the_user_s_own() -> None:
    assert DeviceLock("cpu").folder.name == f"plt-{os.getuid()}"


def test_a_name_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"device name is '\.\./x'"):
        DeviceLock("../x", tmp_path)
