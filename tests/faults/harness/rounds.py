"""Carries out rounds ahead of whoever asks for their outcome, a few at once, because most of a round is waiting."""

import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Lock

from harness.driver import Hang
from harness.mlflow_server import MlflowServer
from harness.plan import FAULTS, Fault, in_database
from harness.round import Broken, Outcome, Round
from harness.studies import SCENARIOS
from harness.unbroken import Unbroken, run_unbroken
from orchestrator.home import Home
from orchestrator.tracking.mlflow_connection import connect
from tests.services import Postgres


class Rounds:
    """The rounds of one session; `close` ends those that nobody asked for."""

    def __init__(self, faults: Mapping[int, str], seed: int, folder: Path, jobs: int) -> None:
        """The fault of each round by its number."""
        self._seed, self._folder = seed, folder
        self._template = folder / "template"
        connect(Home(self._template))  # making MLflow's database takes seconds
        self._unbroken_pool = ThreadPoolExecutor(1, thread_name_prefix="unbroken")
        scenarios = dict.fromkeys(["plain", *(FAULTS[name].scenario for name in faults.values())])
        self._unbroken = {name: self._unbroken_pool.submit(self._run_unbroken, name) for name in scenarios}
        self._lock = Lock()
        self._shared: Postgres | None = None
        self._server = MlflowServer(folder / "server")
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="round")
        self._futures = {number: self._pool.submit(self._carry_out, number, name) for number, name in faults.items()}

    def outcome(self, number: int) -> Outcome:
        """Wait for a round."""
        return self._futures[number].result()

    def unbroken(self, scenario: str) -> Unbroken:
        """Wait for the study to compare with."""
        return self._unbroken[scenario].result()

    def close(self) -> None:
        """Begin no more."""
        for pool in (self._pool, self._unbroken_pool):
            pool.shutdown(cancel_futures=True)
        self._server.kill()
        if self._shared is not None:
            self._shared.end()

    def _carry_out(self, number: int, name: str) -> Outcome:
        """One round from an empty home to its verdict."""
        fault = FAULTS[name]
        unbroken = self.unbroken(fault.scenario)
        folder = self._folder / f"{number}-{name}"
        shutil.copytree(self._template, folder / "home")
        outcome = Outcome(number=number, fault=name, seed=f"{self._seed}/{number}")
        with ExitStack() as services:
            database = self._database(name, services)
            round_ = Round(outcome, folder, unbroken, fault.backend, self._server, database)
            self._break(round_, fault)
        return outcome

    def _database(self, name: str, services: ExitStack) -> Postgres | None:
        """A server of its own for a fault that kills it, one for all others whose study is in a database."""
        if not in_database(name):
            return None
        if FAULTS[name].own_database:
            own = Postgres()
            services.callback(own.end)
            return own
        with self._lock:
            self._shared = self._shared or Postgres()
            return self._shared

    def _break(self, round_: Round, fault: Fault) -> None:
        outcome = round_.outcome
        began = time.monotonic()
        try:
            fault.strike(round_)
            round_.check()
        except (Broken, Hang) as problem:
            outcome.problems.append(str(problem))
        finally:
            round_.end_processes()
            round_.resources.close()
            outcome.seconds = time.monotonic() - began

    def _run_unbroken(self, scenario: str) -> Unbroken:
        folder = self._folder / f"unbroken-{scenario}"
        folder.mkdir()
        return run_unbroken(SCENARIOS[scenario], folder, self._template)
