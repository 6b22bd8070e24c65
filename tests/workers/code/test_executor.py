"""Hostile programs end as failures within the limit and leave the host as it was.

Each is written so that it would be harmless if it did escape: loops and forks are bounded, memory is never touched,
only folders and processes of this test are aimed at, and the network is a listener of this test.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from workers.code import executor
from workers.code.executor import IsolationError, Limits, run_program

LIMITS = Limits(seconds=4)
SECRET = "planted-in-the-parent-for-the-test"


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """When a program has ended no process of it is left, here or without a parent."""
    yield
    assert [process for process in programs() if os.getpid() in lineage(process) or len(lineage(process)) == 1] == []


def programs() -> list[psutil.Process]:
    """Interpreters that run a jailed program, of whomever."""
    found = psutil.process_iter(["cmdline"])
    return [process for process in found if "program.py" in (process.info["cmdline"] or ())]


def lineage(process: psutil.Process) -> list[int]:
    """The processes above one, the nearest first."""
    try:
        return [parent.pid for parent in process.parents()]
    except psutil.NoSuchProcess:
        return []


def test_a_right_program_passes_and_what_it_prints_is_kept() -> None:
    done = run_program("print('héllo')\nassert sum(range(4)) == 6", LIMITS)
    assert (done.ending, done.output) == ("passed", "héllo\n")
    assert done.passed


@pytest.mark.parametrize(
    "program",
    [
        "assert False",
        "raise SystemExit",
        "import os\nos._exit(0)",
        "import sys\nsys.exit(0)",
        "x =",
        "import os\nos.kill(os.getpid(), 9)",
        "import os, sys\nos.write(int(sys.argv[1]), b'0' * 32)\nos._exit(0)",
        "import numpy",  # what is installed for us is not there
    ],
)
def test_a_program_that_does_not_reach_its_end_fails(program: str) -> None:
    done = run_program(program, LIMITS)
    assert done.ending == "failed"
    assert done.seconds < 4


def test_an_endless_loop_ends_at_the_limit() -> None:
    done = run_program(
        "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass", Limits(seconds=1.5)
    )
    assert done.ending == "timeout"
    assert 1.5 <= done.seconds < 4


def test_an_endless_loop_behind_other_processes_ends_too() -> None:
    program = "import os, time\nfor _ in range(3): os.fork()\nos.setsid() if os.getpid() > 4 else None\ntime.sleep(60)"
    assert run_program(program, Limits(seconds=1.5)).ending == "timeout"


def test_forks_are_bounded() -> None:
    program = """
import os, time
made = 0
for _ in range(100):  # a hundred sleepers of a few seconds, if nothing stops it
    try:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        made += 1
    except BlockingIOError:
        break
print(made)
assert made >= 100
"""
    done = run_program(program, LIMITS)
    assert done.ending == "failed"
    assert int(done.output.splitlines()[0]) < LIMITS.processes


def test_ten_gigabytes_are_not_allocated() -> None:
    done = run_program("kept = bytearray(10 * 2**30)  # zero pages, which nothing touches", LIMITS)
    assert done.ending == "failed"
    assert "MemoryError" in done.output


def test_memory_outside_of_the_address_space_is_bounded_too() -> None:
    program = """
import os
memory = os.memfd_create("x")
os.ftruncate(memory, 100 * 2**20)
"""
    assert run_program(program, LIMITS).ending == "failed"
    namespaces = "import ctypes, os\nassert ctypes.CDLL(None).unshare(0x10000000) == 0"
    assert run_program(namespaces, LIMITS).ending == "failed"  # a user namespace of its own could mount memory


def test_files_are_neither_seen_nor_deleted(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    program = f"""
import os, shutil
for folder in ({str(tmp_path)!r}, {str(Path(__file__).parent)!r} + "/no-such-folder"):
    shutil.rmtree(folder, ignore_errors=True)
    assert os.path.exists(folder), "not there"
"""
    done = run_program(program, LIMITS)
    assert done.ending == "failed"
    assert "not there" in done.output
    assert (tmp_path / "kept.txt").read_text() == "kept"


def test_only_an_interpreter_and_an_empty_folder_are_seen() -> None:
    program = """
import os, pathlib
for hidden in ("/proc", "/sys", "/home", "/etc/passwd", "/var", "/mnt", "/old"):
    assert not os.path.exists(hidden), hidden
assert os.listdir(".") == ["program.py"]
assert dict(os.environ).keys() <= {"LC_CTYPE"}
assert os.getuid() and os.geteuid() and os.getgid() and not os.getgroups()
for place in ("/", os.path.dirname(os.__file__), "/dev", "/usr/lib"):
    try:
        pathlib.Path(place, "written").write_text("x")
    except OSError:
        continue
    raise AssertionError(place)
pathlib.Path("written").write_text("x")
"""
    done = run_program(program, LIMITS)
    assert done.ending == "passed", done.output


def test_the_folder_is_bounded() -> None:
    program = """
for index in range(64):  # 512 MiB, in memory that is given back at the end
    with open(f"{index}", "wb") as file:
        file.write(bytes(8 * 2**20))
"""
    done = run_program(program, LIMITS)
    assert done.ending == "failed"
    assert "No space left" in done.output


def test_the_network_is_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        done = run_program(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=2)", LIMITS)
        assert done.ending == "failed"
        assert "Network is unreachable" in done.output or "Connection refused" in done.output
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_gigabyte_is_not_printed() -> None:
    done = run_program("for _ in range(1024): print('x' * 2**20)", LIMITS)
    assert done.ending == "output"
    assert len(done.output) == LIMITS.output
    assert done.seconds < 4


def test_our_environment_and_processes_are_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", SECRET)
    program = f"""
import glob, os
assert "PLANTED" not in os.environ
seen = glob.glob("/proc/*/environ")
assert not any({SECRET!r}.encode() in open(each, "rb").read() for each in seen)
assert not seen
"""
    done = run_program(program, LIMITS)
    assert done.ending == "passed", done.output


def test_nothing_outside_can_be_killed() -> None:
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        program = f"""
import os, signal
for target in ({victim.pid}, os.getppid(), 1):  # none but the victim could be hit, and it is there for that
    try:
        os.kill(target, signal.SIGKILL)
    except OSError:
        pass
assert os.getpid() < 10
"""
        run_program(program, LIMITS)
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_a_program_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "from workers.code.executor import *\n"
        "print('asks', flush=True)\n"
        "run_program('import time\\ntime.sleep(30)', Limits(seconds=30))\n"
    )
    root = str(Path(executor.__file__).parents[2])
    asker = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env={"PYTHONPATH": root})
    assert asker.stdout is not None
    assert asker.stdout.readline() == b"asks\n"
    deadline = time.monotonic() + 20
    while not (jailed := [each for each in programs() if asker.pid in lineage(each)]) and time.monotonic() < deadline:
        os.sched_yield()
    assert jailed
    around = [process for process in jailed[0].parents() if asker.pid in lineage(process)]
    asker.kill()
    asker.wait()
    _, left = psutil.wait_procs([*jailed, *around], timeout=20)
    assert left == []
    assert len(around) == 3  # outside, builder and init


REFUSES = """
from workers.code.executor import *
try: print(run_program('print(1)'))
except IsolationError as error: print('refused:', error)
"""
ROOT = str(Path(executor.__file__).parents[2])


def test_where_nothing_can_be_isolated_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With namespaces forbidden from outside: a user namespace in which no further ones can be made."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("util-linux's unshare is not installed")
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    done = subprocess.run(
        [unshare, "--user", "--map-root-user", "sh", "-c", forbid, "sh", sys.executable, "-c", REFUSES],
        env={"PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("refused: programs cannot be run apart from others here (OSError"), done.stderr
    assert "unshare: No space left on device" in done.stdout
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(IsolationError, match="on Linux only, and this is darwin"):
        run_program("print(1)")


def test_a_user_without_rights_can_isolate_too() -> None:
    """As root, by becoming one: with a Python that anybody may run."""
    if os.geteuid():
        pytest.skip("the other tests run as a user without rights already")
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("there is no Python that users without rights may run")
    script = f"import os, sys\nsys.path.insert(0, {ROOT!r})\nos.chdir('/')\n{REFUSES}"
    done = subprocess.run(
        [python, "-I", "-c", script],
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    if "No module named 'workers'" in done.stderr or "SyntaxError" in done.stderr:
        pytest.skip("that Python is too old, or may not read this checkout")
    assert done.stdout.startswith("Execution(ending='passed', output='1\\n'"), done.stderr
