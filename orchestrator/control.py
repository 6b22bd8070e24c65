"""What a person may do to a study from outside its driver: stop, pause, go on, try failures again, allow more.

The dashboard's buttons and the command line share these rules. A living driver is asked and nobody waits for its
answer; where there is none, one is started (`orchestrator.driver_launch`).
"""

from dataclasses import dataclass

from orchestrator.asking import Asking
from orchestrator.driver_launch import DriverLaunch
from orchestrator.driver_lock import living_driver
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.requests import RequestKind


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """How a driver that must be started runs attempts; as the options of `plt run`."""

    backend: str = "ray"
    address: str | None = None

    def arguments(self) -> tuple[str, ...]:
        """For the command line."""
        return ("--backend", self.backend, *(("--address", self.address) if self.address else ()))


class Control:
    """Acts on one study. Every method says in one line what was done, or raises a `PltError`."""

    def __init__(self, home: Home, study: StudyRecord, launch: DriverLaunch | None = None) -> None:
        self._home, self._study = home, study
        self._launch = launch or DriverLaunch(home, study.name)

    def stop(self) -> str:
        """End the driver with what runs given back."""
        return self._ask(RequestKind.STOP)

    def pause(self) -> str:
        """Free the devices; the driver stays."""
        return self._ask(RequestKind.PAUSE)

    def resume(self, options: DriverOptions) -> str:
        """Go on: after a pause, or with a new driver."""
        if living_driver(self._home, self._study.name) is not None:
            return self._ask(RequestKind.RESUME)
        return self._start(("resume", self._study.name), options)

    def retry_failed(self, options: DriverOptions) -> str:
        """Try every failed trial again that was not tried again yet."""
        require_failed(self._study)
        if living_driver(self._home, self._study.name) is not None:
            return self._ask(RequestKind.RETRY_FAILED)
        return self._start(("retry", self._study.name, "--failed"), options)

    def allow(self, configurations: int, options: DriverOptions) -> str:
        """Raise the budget and go on."""
        if configurations <= self._study.budget:
            raise StudyError(
                f"the budget is {self._study.budget} configurations already, and {configurations} were asked for; "
                "give more"
            )
        if living_driver(self._home, self._study.name) is not None:
            return self._ask(RequestKind.BUDGET, configurations)
        return self._start(("resume", self._study.name, "--configurations", str(configurations)), options)

    def _ask(self, kind: RequestKind, configurations: int | None = None) -> str:
        request = Asking(self._home, self._study.name).post(kind, configurations)
        return f"asked {request.to} to {kind.value.replace('_', ' ')}; it answers at its next report"

    def _start(self, command: tuple[str, ...], options: DriverOptions) -> str:
        launch = self._launch.start((*command, *options.arguments()))
        return f"started `plt {' '.join(launch.command)}` as process {launch.pid}"


def require_failed(study: StudyRecord) -> list[TrialRecord]:
    """Failed trials that were not tried again yet; a `StudyError` when there is none."""
    retried = {trial.retries for trial in study.trials}
    failed = [trial for trial in study.trials if trial.failure is not None and trial.number not in retried]
    if not failed:
        raise StudyError(f"study {study.name} has no failed trial to try again; see `plt status {study.name}`")
    return failed
