"""One round: a study in a home of its own, a fault at a random moment, and what came of it."""

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.driver import Driver, processes_of, wait_until
from harness.invariants import Expected, breaches
from harness.mlflow_server import MlflowServer
from harness.outside import Place
from harness.unbroken import Unbroken
from orchestrator.records import StudyState, TrialRecord
from tests.services import Postgres

_RESUMES = 3
"""How often a study may need to be continued."""
_LATEST = 0.8
"""The latest moment for a fault, as a share of what is left to do."""
_SLOW_MLFLOW = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "2",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}


class Broken(AssertionError):  # noqa: N818 - it is what the study is
    """Something was not as it must be, in one line."""


@dataclass
class Outcome:
    """A line of the table."""

    number: int
    fault: str
    seed: str
    moment: str = ""
    finished_before: int = 0
    resumes: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Round:
    """What a fault works with. It begins with `start` and ends with `finish`."""

    def __init__(
        self,
        outcome: Outcome,
        folder: Path,
        unbroken: Unbroken,
        backend: str,
        server: MlflowServer,
        database: Postgres | None = None,
    ) -> None:
        self.outcome, self.folder, self.unbroken = outcome, folder, unbroken
        self.random = random.Random(outcome.seed)
        self.backend = [f"--backend={backend}"]
        """Options of every command that drives."""
        self.environment = {"PLT_HOME": str(folder / "home"), **_SLOW_MLFLOW}
        self.database = database
        """Where its study is kept; None for its home."""
        storage = None
        if database is not None:
            name = f"round_{outcome.number}"
            self.environment |= {"PLT_STORAGE": database.make(name), "PGPASSWORD": database.PASSWORD}
            storage = database.with_password(name)
        self.place = Place.of(folder / "home", f"round-{outcome.number}", storage)
        self.file = unbroken.scenario.write(folder, self.place.name)
        self.kept: dict[int, TrialRecord] = {}
        self.points_may_miss = False
        self.server = server
        self.resources = ExitStack()
        """What the round needs until it is checked."""
        self._commands = 0

    def track_at(self, uri: str) -> None:
        """Have the study tracked by a server."""
        self.environment["MLFLOW_TRACKING_URI"] = uri
        self.place = replace(self.place, tracking=uri)

    def plt(self, *arguments: str, warm: bool = False) -> Driver:
        """A `plt` command, its output in a file of its own; a `warm` one waits for `go`."""
        self._commands += 1
        return Driver(list(arguments), self.environment, self.folder / f"plt-{self._commands}.txt", warm=warm)

    def start(self, *, warm: bool = False) -> Driver:
        """`plt run` of the study."""
        return self.plt("run", str(self.file), *self.backend, warm=warm)

    def continued(self) -> Driver:
        """`plt resume`, or `plt run` again when the study was not even created."""
        self.outcome.resumes += 1
        if not self.place.exists():
            return self.start()
        return self.plt("resume", self.place.name, *self.backend)

    def await_moment(self, driver: Driver, *, in_start: bool = False) -> None:
        """Let the driver work until a random moment: after so many of the reports that all trials make, and a little.

        With `in_start` it may also lie before the first trial runs, even before the study exists.
        """
        if in_start and self.random.random() < 1 / 6:
            pause = self.random.uniform(0, self.unbroken.start_seconds)
            self.outcome.moment = f"{pause:.2f} s after the start"
        else:
            done = self.place.reports()
            reports = done + self.random.randint(1, max(1, round(_LATEST * (self.unbroken.reports - done))))
            pause = self.random.uniform(0, 0.1)
            self.outcome.moment = f"{reports} of {self.unbroken.reports} reports"
            wait_until(lambda: driver.ended() or self.place.reports() >= reports, f"{reports} reports")
        time.sleep(pause)
        self.expect(not driver.ended(), f"the driver ended before the moment: {driver.said()[-1500:]}")

    def keep(self) -> None:
        """Note what is finished now: it must stay as it is."""
        self.kept = self.place.finished()
        self.outcome.finished_before = len(self.kept)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Raise `Broken` unless it holds."""
        if not holds:
            raise Broken(otherwise)

    def expect_exit(self, driver: Driver, *codes: int) -> None:
        """Wait for the driver's end, which must be one of these."""
        code = driver.wait()
        self.expect(code in codes, f"plt ended with {code}, not {codes}: {driver.said()[-1500:]}")

    def finish(self) -> None:
        """Continue the study until it is complete and tracked."""
        for _ in range(_RESUMES):
            if self._complete():
                return
            self.expect_exit(self.continued(), 0)
        self.expect(self._complete(), f"the study is not complete and tracked after {_RESUMES} resumes")

    def check(self) -> None:
        """Note every breach of what must hold."""
        expected = Expected(
            truth=self.unbroken.truth,
            configurations=self.unbroken.scenario.configurations,
            kept=self.kept,
            points_may_miss=self.points_may_miss,
        )
        self.outcome.problems += breaches(self.place, expected)

    def end_processes(self) -> None:
        """End what the round left behind."""
        for process in processes_of(self.place.home.root):
            process.kill()

    def _complete(self) -> bool:
        if not self.place.exists() or self.place.home.spool(self.place.name).exists():
            return False
        return self.place.record().state is StudyState.COMPLETE
