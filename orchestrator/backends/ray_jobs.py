"""A cluster's Jobs API: commands that run there, whoever asked for them and however long they stay.

A job is only a process that was started somewhere. What it did is in the study's storage; Ray's own word on a job is
never taken for more than whether it may still run.
"""

import logging
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.exceptions import AuthenticationError, RayError
from ray.job_submission import JobStatus, JobSubmissionClient

from orchestrator.errors import ServiceError

_LIVING = frozenset({JobStatus.PENDING, JobStatus.RUNNING})
_LOOK_SECONDS = 0.3
_BEGINS = "--- plt begins ---"
"""What a job prints first: all before it is Ray's own, and one line that may come after it."""
_ENTRYPOINT = "Running entrypoint for job "
_NOT_YET, _PATIENCE = "No available agent", 60.0
"""What a cluster says that has just started, and for how many seconds it is asked again."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the cluster says of a job."""

    id: str
    living: bool
    """Whether it waits or runs."""
    state: str
    message: str
    exit_code: int | None
    metadata: Mapping[str, str]


class RayJobs:
    """Jobs of the cluster whose dashboard listens at `address`, such as `http://head:8265`."""

    def __init__(
        self,
        address: str,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A `ServiceError` when nobody answers there."""
        self.address, self._wait, self._clock = address, wait, clock
        for teller in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
            logging.getLogger(teller).setLevel(logging.ERROR)  # they tell of every upload
        with _Reached(address):
            self._client = JobSubmissionClient(address)

    def all(self) -> list[Job]:
        """Every job that the cluster remembers and that was submitted with an id."""
        with _Reached(self.address):
            return [_job(details) for details in self._client.list_jobs() if details.submission_id]

    def get(self, job_id: str) -> Job | None:
        """A job, or None when the cluster knows of none."""
        return next((job for job in self.all() if job.id == job_id), None)

    def submit(
        self,
        job_id: str,
        command: Sequence[str],
        *,
        folder: Path,
        variables: Mapping[str, str],
        metadata: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> bool:
        """Start a command in a copy of `folder`; False when there is a job of that id already."""
        environment: dict[str, Any] = {"working_dir": str(folder), "env_vars": dict(variables)}
        if requirements:
            environment["pip"] = list(requirements)
        with _Reached(self.address):
            try:
                self._submit_when_ready(
                    entrypoint=f"echo {shlex.quote(_BEGINS)} && exec {shlex.join(command)}",
                    submission_id=job_id,
                    runtime_env=environment,
                    metadata=dict(metadata),
                )
            except RuntimeError:
                if self.get(job_id) is not None:
                    return False
                raise
        return True

    def _submit_when_ready(self, **job: Any) -> None:
        until = self._clock() + _PATIENCE
        while True:
            try:
                self._client.submit_job(**job)
            except RuntimeError as error:
                if _NOT_YET not in str(error) or self._clock() >= until:
                    raise
            else:
                return
            self._wait(_LOOK_SECONDS)

    def output(self, job_id: str) -> Iterator[str]:
        """What a job prints, line by line as it comes, until it has ended; why it never began, if so."""
        printed = 0
        while True:
            job = self.get(job_id)
            with _Reached(self.address):
                _, began, text = str(self._client.get_job_logs(job_id)).partition(f"{_BEGINS}\n")
            *lines, rest = text[printed:].split("\n")
            printed = len(text) - len(rest)
            yield from (line for line in lines if not line.startswith(_ENTRYPOINT + job_id))
            if job is None or not job.living:
                if rest or not began:
                    yield rest if began or job is None else job.message
                return
            self._wait(_LOOK_SECONDS)

    def stop(self, job_id: str) -> None:
        """Ask a job to end."""
        with _Reached(self.address):
            self._client.stop_job(job_id)


def _job(details: Any) -> Job:
    return Job(
        id=str(details.submission_id),
        living=details.status in _LIVING,
        state=str(details.status.value),
        message=str(details.message or ""),
        exit_code=details.driver_exit_code,
        metadata={str(name): str(value) for name, value in (details.metadata or {}).items()},
    )


class _Reached:
    """Turns what goes wrong on the way to the cluster into one line with the remedy."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConnectionError | RuntimeError | ValueError | OSError | RayError):
            text = str(error).strip() or type(error).__name__
            refused = "401" in text or isinstance(error, AuthenticationError)
            reason = "it wants another token, see RAY_AUTH_TOKEN" if refused else text.splitlines()[0]
            raise ServiceError(
                f"the cluster's Jobs API at {self._address} cannot be used ({reason}); give the address of its "
                "dashboard, such as http://head:8265"
            ) from error
