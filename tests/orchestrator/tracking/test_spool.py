"""The file of what waits: cut at every byte, crossed off, shortened, on a full disk, and while others read it."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.tracking.spool import Spool, waiting_lines

LINES = [b'{"a":1}\n', b'{"longer":"line"}\n', b"{}\n", b'{"b":[1,2,3]}\n']


def everything(spool: Spool, most: int = 1000) -> list[bytes]:
    """All lines that wait, crossing none off."""
    return [line + b"\n" for line in spool.read(most)[0]]


def take(spool: Spool, count: int) -> list[bytes]:
    """Read some lines and cross them off."""
    lines, position = spool.read(count)
    spool.delivered(position, len(lines))
    return [line + b"\n" for line in lines]


def test_lines_come_back_in_order_and_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "folder" / "spool")
    for line in LINES:
        spool.append(line)
    assert spool.waiting == 4
    assert take(spool, 3) == LINES[:3]
    assert everything(spool) == LINES[3:]
    assert spool.waiting == 1
    assert take(spool, 9) == LINES[3:]
    assert take(spool, 9) == []
    assert spool.waiting == 0


def test_what_was_not_crossed_off_is_there_for_the_next_process(tmp_path: Path) -> None:
    first = Spool(tmp_path / "spool")
    for line in LINES:
        first.append(line)
    take(first, 2)
    first.read(1)  # read, not crossed off: its process was killed before the delivery
    second = Spool(tmp_path / "spool")
    assert second.waiting == 2
    assert everything(second) == LINES[2:] == list(waiting_lines(tmp_path / "spool"))
    assert second.trouble == ""


def test_a_file_cut_anywhere_keeps_its_whole_lines_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    for delivered in range(len(LINES) + 1):
        path.unlink(missing_ok=True)
        spool = Spool(path)
        for line in LINES:
            spool.append(line)
        lines, position = spool.read(delivered)
        if delivered < len(LINES):
            spool.delivered(position, len(lines))
        whole = path.read_bytes()
        header = len(whole) - sum(map(len, LINES))
        ends = [header + sum(map(len, LINES[: count + 1])) for count in range(len(LINES))]
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            kept = [line for line, end in zip(LINES, ends, strict=True) if end <= size]
            again = Spool(path)
            left = kept[delivered:] if delivered < len(LINES) else kept
            assert everything(again) == left, (delivered, size)
            assert again.waiting == len(left)
            assert ("half a line" in again.trouble) == (size not in (0, header, *ends)), (delivered, size)
            again.append(b'{"new":1}\n')
            assert everything(Spool(path)) == [*left, b'{"new":1}\n']


@pytest.mark.parametrize(
    "header", [b"\0" * 36, b'{"delivered":                     7}', b'{"delivered":                   41}']
)
def test_a_damaged_header_delivers_again_rather_than_never(tmp_path: Path, header: bytes) -> None:
    """Zeros after a power cut; a place inside the header; a place inside a line."""
    path = tmp_path / "spool"
    spool = Spool(path)
    for line in LINES:
        spool.append(line)
    take(spool, 2)
    text = path.read_bytes()
    path.write_bytes(header[:35] + b"\n" + text[36:])
    assert everything(Spool(path)) == LINES


def test_the_file_is_emptied_when_nothing_waits_and_deleted_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    empty = path.stat().st_size
    for _ in range(3):
        for line in LINES:
            spool.append(line)
        take(spool, 100)
        assert path.stat().st_size == empty
    spool.close()
    spool.close()
    assert not path.exists()
    assert list(waiting_lines(path)) == []


def test_a_spool_with_lines_stays_when_it_is_closed_and_nobody_writes_to_it_any_more(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    spool.append(LINES[0])
    lines, position = spool.read(1)
    spool.close()
    spool.delivered(position, len(lines))
    assert list(waiting_lines(path)) == [LINES[0]]
    assert spool.read(1)[0] == []


def test_a_file_in_steady_use_does_not_grow(tmp_path: Path) -> None:
    """Never empty: a line is always left, as with a study that reports all the time."""
    path = tmp_path / "spool"
    spool = Spool(path)
    line = b"x" * 999 + b"\n"
    spool.append(line)
    sizes = []
    for _ in range(5000):
        spool.append(line)
        assert take(spool, 1) == [line]
        sizes.append(path.stat().st_size)
    assert max(sizes) < 1_100_000
    assert everything(Spool(path)) == [line]


def test_positions_stay_right_when_the_file_is_shortened(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for number in range(3000):
        spool.append(b"%0999d\n" % number)
    end = spool.end
    spool.append(b"beyond\n")
    seen = 0
    while lines := spool.read(100, end)[0]:
        assert int(lines[0]) == seen
        take(spool, len(lines))
        seen += len(lines)
    assert seen == 3000
    assert everything(spool) == [b"beyond\n"]


@given(st.lists(st.one_of(st.integers(1, 4), st.binary(max_size=40)), max_size=30))
def test_it_is_a_queue_that_survives_reopening(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | bytes]
) -> None:
    """Compared with a list; every step is done on a file opened anew."""
    path = tmp_path_factory.mktemp("spool") / "spool"
    expected: list[bytes] = []
    for step in steps:
        spool = Spool(path)
        if isinstance(step, int):
            assert take(spool, step) == expected[:step]
            del expected[:step]
        else:
            line = step.replace(b"\n", b"") + b"\n"
            spool.append(line)
            expected.append(line)
        assert spool.waiting == len(expected)
        assert list(waiting_lines(path)) == expected


def test_a_line_longer_than_any_block_comes_whole(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    long = os.urandom(400_000).hex().encode() + b"\n"
    spool.append(long)
    spool.append(LINES[0])
    assert take(spool, 1) == [long]
    assert take(spool, 1) == [LINES[0]]


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let this process write no file beyond a size: what a full disk does, a part of the last write included."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_fills_up_takes_whole_lines_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    spool.append(LINES[0])
    size = path.stat().st_size
    with limited_files(size + 5), pytest.raises(OSError, match="File too large"):
        spool.append(LINES[1])
    assert path.stat().st_size == size
    spool.append(LINES[2])
    assert everything(spool) == [LINES[0], LINES[2]] == everything(Spool(path))


def test_a_killed_writer_loses_no_line_that_it_wrote(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from orchestrator.tracking.spool import Spool\n"
        "spool = Spool(Path(sys.argv[1])); number = 0\n"
        "while True:\n"
        "    spool.append(b'%d\\n' % number); print(number, flush=True); number += 1\n"
    )
    path = tmp_path / "spool"
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = -1
    while said < 300:
        said = int(process.stdout.readline())
    process.kill()
    said = int([said, *process.stdout.read().split()][-1])
    process.wait()
    kept = [int(line) for line in everything(Spool(path), 10**6)]
    assert kept == list(range(len(kept)))
    assert len(kept) > said


def test_what_a_killed_process_left_while_shortening_is_gone(tmp_path: Path) -> None:
    aside = tmp_path / ".spool.aside"
    aside.write_bytes(b"half")
    Spool(tmp_path / "spool").close()
    assert list(tmp_path.iterdir()) == []
