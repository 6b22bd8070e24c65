"""The journal under kills, full disks and several writers: whole entries, each once, whatever happens."""

import json
import multiprocessing
import os
import resource
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from orchestrator.journal_file import JournalFile, _locked

ENTRY = {"op_code": 2, "worker_id": "w", "study_id": 0, "user_attr": {"key": "value"}}


def entries(path: Path) -> list[dict[str, object]]:
    return list(JournalFile(path).read_logs(0))


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal")
    journal.append_logs([ENTRY, {**ENTRY, "worker_id": "x"}])
    journal.append_logs([ENTRY])
    assert [entry["worker_id"] for entry in entries(tmp_path / "journal")] == ["w", "x", "w"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(VALUES, min_size=1, max_size=4), again=st.integers(0, 4))
def test_it_reads_what_optuna_reads(tmp_path: Path, values: list[object], again: int) -> None:
    path = tmp_path / "journal"
    path.unlink(missing_ok=True)
    JournalFile(path).append_logs([{**ENTRY, "user_attr": {"key": value}} for value in values])
    for start in {0, min(again, len(values))}:
        ours, reference = JournalFile(path), JournalFileBackend(str(path))
        list(ours.read_logs(0))
        assert repr(list(ours.read_logs(start))) == repr(list(reference.read_logs(start)))


def test_a_damaged_entry_is_an_error_unless_it_is_the_last(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    JournalFile(path).append_logs([ENTRY])
    whole = path.read_bytes()
    path.write_bytes(whole + b"{]\n")
    assert len(entries(path)) == 1
    path.write_bytes(whole + b"{]\n" + whole)
    with pytest.raises(ValueError, match="entry 2 cannot be read"):
        entries(path)


def test_a_half_written_entry_is_dropped_by_the_next_writer_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    JournalFile(path).append_logs([ENTRY])
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        assert len(entries(path)) == 1, "a reader does not see it"
        JournalFile(path).append_logs([{**ENTRY, "worker_id": str(cut)}])
        assert [entry["worker_id"] for entry in entries(path)] == ["w", str(cut)]


def test_a_long_half_entry_is_dropped_too(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    JournalFile(path).append_logs([ENTRY])
    with path.open("ab") as file:
        file.write(b"x" * 200_000)
    JournalFile(path).append_logs([ENTRY])
    assert len(entries(path)) == 2
    path.write_bytes(b"y" * 200_000)
    JournalFile(path).append_logs([ENTRY])
    assert len(entries(path)) == 1


def test_a_reader_that_saw_half_an_entry_goes_on_reading_after_it_was_mended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    JournalFile(path).append_logs([ENTRY])
    reader = JournalFile(path)
    with path.open("ab") as file:
        file.write(json.dumps(ENTRY).encode()[:20])
    assert len(list(reader.read_logs(0))) == 1
    JournalFile(path).append_logs([{**ENTRY, "worker_id": "later"}])
    assert [entry["worker_id"] for entry in reader.read_logs(1)] == ["later"]


def write_with_little_room(path: Path, result: Connection) -> None:
    """Append while the file may hardly grow; make room when it fails, and say what the file was then."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    room = path.stat().st_size + 30
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    sizes: list[int] = []

    def make_room(error: OSError) -> None:
        del error
        sizes.append(path.stat().st_size)
        if len(sizes) == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    JournalFile(path, make_room).append_logs([{**ENTRY, "worker_id": "in the end"}])
    result.send(sizes)


def test_a_write_that_fails_leaves_the_file_as_it_was_and_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    JournalFile(path).append_logs([ENTRY])
    before = path.stat().st_size
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=write_with_little_room, args=(path, theirs))
    process.start()
    assert ours.poll(30)
    assert ours.recv() == [before] * 3
    process.join()
    assert [entry["worker_id"] for entry in entries(path)] == ["w", "in the end"]


def append_many(path: Path, name: str, count: int) -> None:
    journal = JournalFile(path)
    for index in range(count):
        journal.append_logs([{**ENTRY, "worker_id": f"{name}-{index}", "padding": "p" * 5000}])


def test_writers_beside_each_other_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=append_many, args=(path, str(each), 50)) for each in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    names = [entry["worker_id"] for entry in entries(path)]
    assert sorted(names) == sorted(f"{each}-{index}" for each in range(4) for index in range(50))


def die_holding_the_lock(path: Path) -> None:
    with _locked(path):
        os.kill(os.getpid(), signal.SIGKILL)


def test_nobody_waits_for_a_writer_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    writer = multiprocessing.get_context("fork").Process(target=die_holding_the_lock, args=(path,))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    JournalFile(path).append_logs([ENTRY])
    assert len(entries(path)) == 1


def test_optuna_itself_reads_it(tmp_path: Path) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    study = optuna.create_study(storage=JournalStorage(JournalFile(tmp_path / "journal")), study_name="s")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
    theirs = optuna.load_study(study_name="s", storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal"))))
    assert [trial.value for trial in theirs.trials] == [trial.value for trial in study.trials]
