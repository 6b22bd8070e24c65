"""Hosts of their own on one machine, made of Linux namespaces: for tests of what happens when one dies or is cut off.

Each has its own address, name, processes, /tmp/ray and /dev/shm; every other folder is shared, as by NFS. They meet on
a bridge in a namespace of its own, so that this machine's network is untouched, there is no way out, and two test runs
may use the same addresses at once. Needs root, `ip` (iproute2) and `unshare`, `nsenter`, `setpriv` (util-linux).

Names begin with `plt-hosts-PID-`; what a test run of a process that is gone has left is deleted by the next one.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_TAG = "plt-hosts-"
_TOOLS = ("ip", "unshare", "nsenter", "setpriv")
_SECONDS = 30.0
_INIT = "hostname {name} && mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray && mount -t tmpfs none /dev/shm && {more}"
_FOR_EVER = " touch /tmp/ray/up; while :; do sleep 3600 & wait; done"
"""The first process of a host; bash collects every orphan while it waits."""


def missing() -> str:
    """What keeps this machine from having hosts, or nothing."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"{', '.join(absent)} not installed" if absent else ""


def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> float:
    """Wait for a condition and say for how many seconds; an `AssertionError` names what did not come."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"no {what} within {seconds:g} s"
        time.sleep(0.05)
    return time.monotonic() - began


class Host:
    """One of them. Its processes end with it, and all of them with the process that made it."""

    def __init__(
        self, net: "Net", name: str, number: int, environment: Mapping[str, str], hidden: Sequence[Path]
    ) -> None:
        self.name, self.ip, self._net = name, f"10.77.0.{number}", net
        self._environment = dict(environment)
        self._space, self._port = f"{net.tag}{number}", f"port{number}"
        _ip("netns", "add", self._space)
        _ip("-n", net.switch, "link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        _ip("-n", net.switch, "link", "set", self._port, "master", "bridge", "up")
        _ip("-n", self._space, "addr", "add", f"{self.ip}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", self._space, "link", "set", device, "up")
        more = "".join(f" mount -t tmpfs none {path};" for path in hidden) + _FOR_EVER
        spaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "--mount-proc"]
        first = ["bash", "-c", _INIT.format(name=name, more=more)]
        in_net = ["ip", "netns", "exec", self._space, "setpriv", "--pdeathsig", "KILL", *spaces]
        self._outer = subprocess.Popen([*in_net, *first], stderr=subprocess.DEVNULL)
        until(self._is_up, f"host {name}", _SECONDS)

    def start(
        self, command: Sequence[str], log: Path, more: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Run a command there, its output into a file; it ends when the host or this process does."""
        enter = ["nsenter", "--target", str(self._first), "--net", "--pid", "--mount", "--uts", "--ipc"]
        with log.open("ab") as output:
            return subprocess.Popen(
                [*enter, "setpriv", "--pdeathsig", "KILL", *command],
                env={**self._environment, **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def find(self, words: str) -> list[int]:
        """Processes, by this machine's numbers, whose command line has these words."""
        space = _namespace(self._first)
        known = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [pid for pid in known if _namespace(pid) == space and words in _command_line(pid)]

    def link(self, up: bool) -> None:
        """Pull the cable, or plug it in again: nobody is told."""
        _ip("-n", self._net.switch, "link", "set", self._port, "up" if up else "down")

    def power_off(self) -> None:
        """Kill everything on it at once."""
        self._outer.kill()
        self._outer.wait()
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "delete", self._space)
        self._net.hosts.pop(self.name, None)

    @property
    def _first(self) -> int:
        """Its first process."""
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def _is_up(self) -> bool:
        assert self._outer.poll() is None, f"host {self.name} ended with {self._outer.returncode}"
        return self._first > 0 and Path(f"/proc/{self._first}/root/tmp/ray/up").exists()


class Net:
    """The hosts and their switch."""

    def __init__(self) -> None:
        _delete_stale()
        self.tag = f"{_TAG}{os.getpid()}-"
        self.switch = f"{self.tag}switch"
        self.hosts: dict[str, Host] = {}
        self._made = 1
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")

    def host(self, name: str, environment: Mapping[str, str], hidden: Sequence[Path] = ()) -> Host:
        """One more, with an address that none had before; `hidden` folders are empty there."""
        self._made += 1
        self.hosts[name] = Host(self, name, self._made, environment, hidden)
        return self.hosts[name]

    def close(self) -> None:
        """End all of them."""
        for host in list(self.hosts.values()):
            host.power_off()
        _ip("netns", "delete", self.switch)


def _delete_stale() -> None:
    for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.splitlines():
        name = line.split()[0]
        if name.startswith(_TAG) and not Path(f"/proc/{name.removeprefix(_TAG).partition('-')[0]}").exists():
            _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _namespace(pid: int) -> str:
    """Of its processes; empty for one that has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
