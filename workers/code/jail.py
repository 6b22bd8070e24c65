"""Runs one Python program apart from everything: a script of its own, started by `workers.code.executor`.

    python -I -S jail.py LIMITS(JSON) STATUS_FD VERDICT_FD < program

Four processes in a row, each killed with the one before it:

1. *outside* keeps the user's rights, maps users for the next one, and waits.
2. *builder* is in new user, mount, PID, network, IPC, UTS and cgroup namespaces.
3. *init* is process 1 of the PID namespace. It makes a root folder of its own in memory, in which there are the
   interpreter and its libraries, read-only, and an empty working folder of bounded size, and nothing else: no /proc, no
   /sys, no home. No further user namespaces can be made. When it ends, the kernel kills everything that is left inside.
4. *program* is an unprivileged user that nobody else is (inside; as root also outside), under limits of memory, CPU
   time, file size, open files and processes, without environment, with /dev/null as standard input.

STATUS_FD gets one JSON line: `{"exit": code}` or `{"error": text}` when this machine cannot isolate. Nothing is run
then. VERDICT_FD is handed on to the program. Linux only, standard library only; Python 3.11 has no `os.unshare`.
"""

import contextlib
import ctypes
import json
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable

NEW_NS, NEW_CGROUP, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = (
    0x00020000,
    0x02000000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
KEPT_FLAGS = {2: MS_NOSUID, 4: MS_NODEV, 8: MS_NOEXEC, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""What `statvfs` says of a mount, and the flag that a remount must repeat."""
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64")
ROOT, WORK, USER = "/tmp", "/work", 2_000_000_000
libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    """A C function that gives 0 or sets errno."""
    if getattr(libc, name)(*arguments):
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends, even if it has ended already."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def outside(limits: dict[str, int], program: bytes, status: int, verdict: int) -> None:
    """Map users for the builder, then wait for its end."""
    user = unused_user()
    ready_read, ready_write = os.pipe()
    mapped_read, mapped_write = os.pipe()
    parent = os.getpid()
    builder = os.fork()
    if not builder:
        os.close(ready_read)
        os.close(mapped_write)
        guarded(status, lambda: build(limits, program, status, verdict, user, (ready_write, mapped_read), parent))
    os.close(ready_write)
    os.close(mapped_read)
    os.close(verdict)
    if os.read(ready_read, 1):
        guarded(status, lambda: map_users(builder, user), ends=False)
        os.write(mapped_write, b"1")
    os.waitpid(builder, 0)


def unused_user() -> int:
    """The number of a user that nobody is, if root may be anybody; else an ordinary one, which only exists inside."""
    if os.geteuid():
        return 1000
    with open("/proc/self/uid_map") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    user = USER + os.getpid()
    if any(start <= user < start + size for start, _, size in ranges):
        return user
    start, _, size = ranges[-1]
    return start + size - 1 - os.getpid() % max(1, size - 1)


def map_users(builder: int, user: int) -> None:
    """Root stays root until the program starts, and the program is `user`; anybody else is `user` from the start."""
    root = os.geteuid() == 0
    lines = {"uid": f"0 0 1\n{user} {user} 1" if root else f"{user} {os.geteuid()} 1"}
    lines["gid"] = lines["uid"] if root else f"{user} {os.getegid()} 1"
    if not root:
        write(f"/proc/{builder}/setgroups", "deny")
    for kind, text in lines.items():
        write(f"/proc/{builder}/{kind}_map", text)


def build(
    limits: dict[str, int],
    program: bytes,
    status: int,
    verdict: int,
    user: int,
    pipes: tuple[int, int],
    parent: int,
) -> None:
    """Enter new namespaces and start the process that will be number 1 of them."""
    die_with_parent(parent)
    call("unshare", NEW_USER | NEW_NS | NEW_PID | NEW_NET | NEW_IPC | NEW_UTS | NEW_CGROUP)
    os.write(pipes[0], b"1")
    if not os.read(pipes[1], 1):
        os._exit(1)
    for pipe in pipes:
        os.close(pipe)
    write("/proc/sys/user/max_user_namespaces", "0")
    alive_read, alive_write = os.pipe()
    init = os.fork()
    if not init:
        os.close(alive_write)
        guarded(status, lambda: be_init(limits, program, status, verdict, user, alive_read))
    os.close(verdict)
    os.waitpid(init, 0)


def be_init(limits: dict[str, int], program: bytes, status: int, verdict: int, user: int, alive: int) -> None:
    """Make the root folder, run the program in it, and say how it ended; `alive` is at its end once the builder is."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.set_blocking(alive, False)
    with contextlib.suppress(BlockingIOError):
        os.read(alive, 1)
        os._exit(1)
    python = make_root(limits)
    with open(f"{WORK}/program.py", "wb") as file:
        file.write(program)
    with contextlib.suppress(OSError):  # an unprivileged builder is the program's user already
        os.chown(WORK, user, user)
    child = os.fork()
    if not child:
        os.close(status)
        guarded(2, lambda: run(limits, python, user, verdict))
    os.close(verdict)
    _, how = os.waitpid(child, 0)
    os.write(status, json.dumps({"exit": os.waitstatus_to_exitcode(how)}).encode() + b"\n")


def make_root(limits: dict[str, int]) -> str:
    """Move into a root folder that holds the interpreter, its libraries and an empty place to work; gives its path."""
    python, base = os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    links = {path: os.readlink(path) for path in LIBRARIES if os.path.islink(path)}
    folders = [path for path in (*LIBRARIES, base) if path not in links and os.path.isdir(path)]
    sources = [(path, os.open(path, os.O_PATH)) for path in dict.fromkeys(folders)]
    sources += [
        (path, os.open(path, os.O_PATH))
        for path in ("/dev/null", "/dev/urandom", "/etc/ld.so.cache")
        if os.path.exists(path)
    ]
    mount("tmpfs", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=1000,mode=755")
    for path, handle in sources:
        show(path, handle)
    for path, target in links.items():
        os.makedirs(os.path.dirname(ROOT + path), exist_ok=True)
        os.symlink(target, ROOT + path)
    os.makedirs(ROOT + WORK)
    mount("tmpfs", ROOT + WORK, "tmpfs", MS_NOSUID | MS_NODEV, f"size={limits['disk']},nr_inodes=1000,mode=700")
    os.makedirs(f"{ROOT}/old")
    if libc.syscall(PIVOT_ROOT[platform.machine()], ROOT.encode(), f"{ROOT}/old".encode()):
        raise OSError(ctypes.get_errno(), f"pivot_root: {os.strerror(ctypes.get_errno())}")
    os.chdir("/")
    call("umount2", b"/old", MNT_DETACH)
    os.rmdir("/old")
    os.symlink(WORK, "/tmp")
    mount("none", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    return python


def show(path: str, handle: int) -> None:
    """The same folder or file at the same place of the new root, read-only."""
    target, source = ROOT + path, f"/proc/self/fd/{handle}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w"):
            pass
    mount(source, target, "", MS_BIND | MS_REC)
    kept = sum(flag for bit, flag in KEPT_FLAGS.items() if os.statvfs(target).f_flag & bit)
    device = 0 if path.startswith("/dev/") else MS_NODEV
    mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | device | kept)
    os.close(handle)


def run(limits: dict[str, int], python: str, user: int, verdict: int) -> None:
    """Give up every right but those of an ordinary user, and become the program."""
    keep = {0, 1, 2, verdict}
    for number in range(256):
        if number not in keep:
            with contextlib.suppress(OSError):
                os.close(number)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.set_inheritable(verdict, True)
    for name, amount in (
        ("AS", limits["memory"]),
        ("DATA", limits["memory"]),
        ("CPU", limits["cpu"]),
        ("FSIZE", limits["file"]),
        ("NOFILE", limits["files"]),
        ("NPROC", limits["processes"]),
        ("CORE", 0),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
    ):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (amount, amount))
    if os.geteuid() != user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.setsid()
    os.chdir(WORK)
    os.execve(python, [python, "-I", "-S", "-B", "-X", "utf8", "program.py", str(verdict)], {})


def write(path: str, text: str) -> None:
    """Write a small file of the kernel's."""
    with open(path, "w") as file:
        file.write(text)


def guarded(status: int, action: Callable[[], None], *, ends: bool = True) -> None:
    """Do it and end this process; what goes wrong is said on `status`."""
    try:
        action()
    except BaseException as error:
        os.write(status, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")
        os._exit(1)
    if ends:
        os._exit(0)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[4]))
    outside(json.loads(sys.argv[1]), sys.stdin.buffer.read(), int(sys.argv[2]), int(sys.argv[3]))
