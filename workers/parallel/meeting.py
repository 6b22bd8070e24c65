"""How the workers of one trial find each other: through its attempt's folder, or the store where no disk is shared.

Rank 0 opens a port of its own and writes where it is into `AttemptFolder.meeting`, and into the trial's store if it has
one; the others wait for either. An attempt's folder is its own, so nobody meets workers of another attempt. Everything
is refused after a time: `SECONDS` to meet, `SILENT_SECONDS` for any later step of the others. CPU tensors travel by
gloo, GPU tensors by NCCL.
"""

import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # documented, and not in __all__

from workers.attempt_folder import AttemptFolder
from workers.parallel.notice import StoredNotice
from workers.parallel.ranks import ALONE, Joined, Ranks
from workers.protocol import Gang

SECONDS = 300.0
"""For all to come."""
SILENT_SECONDS = 1800.0
"""For a worker that others wait for: rank 0 may evaluate, save, or give way to a benchmark meanwhile."""
_LOOK_SECONDS = 0.05
_SIOCGIFADDR = 0x8915
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


class MeetingError(ConnectionError):
    """The workers of a trial did not find each other."""


@contextmanager
def joined(
    gang: Gang | None, folder: Path | str, *, store: str | None = None, seconds: float = SECONDS
) -> Iterator[Ranks]:
    """Meet the other workers of `gang`, and part at the end; without a gang there is nobody to meet.

    `store` is the trial's (`TrialRequest.store`).
    """
    if gang is None or gang.workers == 1:
        yield ALONE
        return
    notice = StoredNotice(store, Path(folder).name)
    meeting, address = _meet(gang, AttemptFolder(folder).meeting, notice, time.monotonic() + seconds)
    with _spoken_to_at(address):
        cuda = torch.cuda.is_available()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=meeting,
            rank=gang.rank,
            world_size=gang.workers,
            timeout=timedelta(seconds=SILENT_SECONDS),
        )
        try:
            ranks = Joined()
            ranks.total(1)  # all are here
            AttemptFolder(folder).meeting.unlink(missing_ok=True)
            if gang.rank == 0:
                notice.remove()
            yield ranks
        finally:
            dist.destroy_process_group()


def _meet(gang: Gang, place: Path, notice: StoredNotice, until: float) -> tuple[Store, str]:
    """The store that all workers share, and this worker's own address."""
    seconds = timedelta(seconds=max(1.0, until - time.monotonic()))
    if gang.rank == 0:
        place.parent.mkdir(parents=True, exist_ok=True)
        store = TCPStore(gang.host, 0, gang.workers, is_master=True, timeout=seconds, wait_for_workers=False)
        _write(place, f"{gang.host} {store.port}")
        notice.write(f"{gang.host} {store.port}")
        return store, gang.host
    host, port = _read(gang, place, notice, until).split()
    store = TCPStore(host, int(port), gang.workers, is_master=False, timeout=seconds)
    return store, _own_address(host, int(port))


def _write(place: Path, text: str) -> None:
    aside = place.with_name(f".{place.name}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(place)


def _read(
    gang: Gang, place: Path, notice: StoredNotice, until: float, look: Callable[[float], None] = time.sleep
) -> str:
    while not place.exists():
        if (text := notice.read()) is not None:
            return text
        if time.monotonic() > until:
            raise MeetingError(f"rank {gang.rank} of {gang.workers} waited for {place} in vain: rank 0 never came")
        look(_LOOK_SECONDS)
    return place.read_text(encoding="utf-8")


def _own_address(host: str, port: int) -> str:
    """This machine's address on the way to `host`; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((host, port))
        own: str = way.getsockname()[0]
        return own


@contextmanager
def _spoken_to_at(address: str) -> Iterator[None]:
    """Have gloo and NCCL use the interface of `address`, unless somebody has said which to use.

    Left to themselves they take the one that the host's name stands for, which on many machines nobody else reaches.
    """
    interface = interface_of(address)
    unset = [name for name in _INTERFACES if interface is not None and name not in os.environ]
    os.environ.update(dict.fromkeys(unset, interface or ""))
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)


def interface_of(address: str) -> str | None:
    """The network interface that has this IPv4 address; None where that cannot be told."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has none
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None
