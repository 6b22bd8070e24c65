"""What happens to the driver itself: killed, interrupted, stopped, paused, doubled, its journal cut short."""

import os
import signal
import socket
from pathlib import Path

from optuna.trial import TrialState

from harness.driver import is_worker, wait_until
from harness.round import Round
from orchestrator.records import StudyState


def driver_killed(round_: Round) -> None:
    """SIGKILL, once or twice."""
    for kill in range(round_.random.choice((1, 1, 2))):
        driver = round_.continued() if kill else round_.start()
        round_.await_moment(driver, in_start=True)
        driver.kill()
        round_.keep()
    round_.finish()


def interrupted(round_: Round) -> None:
    """Ctrl-C: it ends cleanly and says how to go on."""
    driver = round_.start()
    round_.await_moment(driver)
    driver.send(signal.SIGINT)
    round_.expect_exit(driver, 130)
    round_.expect(f"plt resume {round_.place.name}" in driver.said(), "it does not say how to go on")
    round_.keep()
    round_.expect(not _running(round_), "an interrupted driver left trials RUNNING")
    round_.finish()


def stopped(round_: Round) -> None:
    """`plt stop` from another process."""
    driver, stop = round_.start(), round_.plt("stop", round_.place.name, warm=True)
    round_.await_moment(driver)
    round_.expect_exit(stop.go(), 0)
    round_.expect_exit(driver, 130)
    round_.keep()
    round_.expect(not _running(round_), "a stopped driver left trials RUNNING")
    round_.finish()


def paused(round_: Round) -> None:
    """`plt pause`: nothing is trained and no worker kept until `plt resume`; the same driver finishes the study."""
    driver, pause = round_.start(), round_.plt("pause", round_.place.name, warm=True)
    round_.await_moment(driver)
    round_.expect_exit(pause.go(), 0)
    round_.keep()
    round_.expect(round_.place.record().state is StudyState.PAUSED, "a paused study does not say so")
    round_.expect(not _running(round_), "a paused study has trials RUNNING")
    wait_until(lambda: not driver.descendants(is_worker), "the end of a paused study's workers", patience=30)
    round_.expect_exit(round_.plt("resume", round_.place.name), 0)
    round_.expect_exit(driver, 0)


def second_driver(round_: Round) -> None:
    """A second `plt run` is refused, names the first, and does not disturb it."""
    driver, second = round_.start(), round_.start(warm=True)
    round_.await_moment(driver)
    round_.expect_exit(second.go(), 2)
    name = f"{socket.gethostname()}:{driver.pid}"
    round_.expect(name in second.said(), f"the second driver does not name {name}: {second.said()[-500:]}")
    round_.keep()
    round_.expect_exit(driver, 0)


def journal_cut(round_: Round) -> None:
    """SIGKILL and a last line of the journal that is cut short, as a power cut would."""
    driver = round_.start()
    round_.await_moment(driver)
    driver.kill()
    half = _cut_last_line(round_, round_.place.home.journal(round_.place.name))
    round_.keep()
    resumed = round_.continued()
    round_.expect_exit(resumed, 0)
    said = "half an entry" in resumed.said()
    round_.expect(said == half, f"half an entry was left: {half}; it says so: {said}: {resumed.said()[-500:]}")


def _cut_last_line(round_: Round, journal: Path) -> bool:
    """Whether half a line is left."""
    text = journal.read_bytes()
    last = text.splitlines(keepends=True)[-1]
    cut = round_.random.randint(1, len(last))
    os.truncate(journal, len(text) - cut)
    round_.outcome.moment += f", {cut} of {len(last)} bytes cut"
    return cut < len(last)


def _running(round_: Round) -> list[int]:
    """Trials that are RUNNING in the storage itself."""
    return [trial.number for trial in round_.place.optuna_trials() if trial.state is TrialState.RUNNING]
