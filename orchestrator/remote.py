"""Studies on a cluster, from a machine that sees neither its storage nor its nodes: only its Jobs API.

A submitted study is driven there by `plt run` in a job of its own, which survives whoever submitted it. Every other
question is put the same way: the command itself runs there, beside the storage, and what it prints comes back. So a
study's state is never guessed from a job's: Ray calls a job FAILED as soon as it loses sight of it, while the driver
may go on, so the study's own lock is asked who drives it.
"""

import json
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.backends.ray_jobs import Job, RayJobs
from orchestrator.errors import StudyError
from orchestrator.shipment import STUDY_FILE, VERSIONS, requirements, shipment, versions
from workers.fingerprint import fingerprint

_STUDY, _SPEC = "plt_study", "plt_spec"
"""A driver's metadata: the study, and the fingerprint of what was submitted."""
_LOOKS = 10
"""How often a job that lives is asked whether it drives its study yet, or still."""


class Remote:
    """One cluster and the home on its shared storage."""

    def __init__(self, jobs: RayJobs, home: str) -> None:
        """`home` is the PLT_HOME of the cluster's nodes."""
        self._jobs, self._home = jobs, home

    def submit(self, name: str, study: Path, *, install: bool = False) -> tuple[Job, bool]:
        """Have a study driven there, from its file; the job, and whether it is new.

        Submitting again what is being driven changes nothing; what has ended goes on where it stopped. A `StudyError`
        refuses another file under the name of a study that is being driven. With `install` the job gets the packages
        of this machine, else it refuses to run with others.
        """
        spec = fingerprint([study.read_text(encoding="utf-8")])
        driving = self._driving(name)
        if driving is None:
            return self._drive(name, ["run", STUDY_FILE], spec, study, install=install)
        if driving.metadata.get(_SPEC) not in (spec, ""):
            raise StudyError(
                f"study {name} is being driven by job {driving.id} from another file; stop it with `plt stop {name} "
                "--address ...` or submit this one under another name"
            )
        return driving, False

    def resume(self, name: str, options: Sequence[str] = ()) -> tuple[Job, bool]:
        """Have an existing study driven on, or tell who drives it to go on; the job, and whether it is new."""
        driving = self._holding(name)
        if driving is None:
            return self._drive(name, ["resume", name, *options], None, None, install=False)
        deque(self.command(["resume", name, *options]).output(), maxlen=0)
        return driving, False

    def driver(self, name: str) -> Job | None:
        """The latest job that drives or drove a study."""
        return max(self._drivers(name), key=lambda job: _turn(job.id), default=None)

    def output_of_driver(self, name: str) -> Iterator[str]:
        """What a study's driver prints."""
        job = self.driver(name)
        if job is None:
            raise StudyError(f"no study {name} was submitted to {self._jobs.address}; `plt list --address` names them")
        return self._jobs.output(job.id)

    def command(self, arguments: Sequence[str]) -> "RemoteCommand":
        """Run `plt` with these arguments there."""
        job_id = f"plt-command-{secrets.token_hex(6)}"
        with shipment() as folder:
            self._submit(job_id, arguments, folder, {}, install=False)
        return RemoteCommand(self._jobs, job_id)

    def _drive(
        self, name: str, arguments: Sequence[str], spec: str | None, study: Path | None, *, install: bool
    ) -> tuple[Job, bool]:
        """Start the study's next driver."""
        latest = self.driver(name)
        job_id = f"plt-{name}-{1 if latest is None else _turn(latest.id) + 1}"
        with shipment(study) as folder:
            new = self._submit(
                job_id,
                [*arguments, "--address", "auto"],
                folder,
                {_STUDY: name, _SPEC: spec or ""},
                install=install,
            )
        job = self._jobs.get(job_id)
        assert job is not None
        return job, new

    def _driving(self, name: str) -> Job | None:
        """The job that drives a study, if one does or is about to."""
        latest = self.driver(name)
        if latest is None or not self._may_live(latest):
            return None
        return latest if latest.living or self._is_driven(name) else None

    def _holding(self, name: str) -> Job | None:
        """The job whose process holds the study's lock; one that begins or is about to end is waited for."""
        for _ in range(_LOOKS):
            latest = self.driver(name)
            if latest is None or not self._may_live(latest):
                return None
            if self._is_driven(name):
                return latest
            if not latest.living:
                return None
        raise StudyError(
            f"the latest job of study {name} on {self._jobs.address} lives and does not drive it; look at "
            f"`plt logs {name} --address ...`, and try again once it has begun or ended"
        )

    def _may_live(self, job: Job) -> bool:
        """Whether its process may: it does not only where the cluster knows how it ended."""
        return job.living or job.exit_code is None

    def _is_driven(self, name: str) -> bool:
        """Whether somebody holds the study's lock, as `plt status` says there."""
        asked = self.command(["status", name, "--json"])
        text = "\n".join(asked.output())
        return asked.exit_code() == 0 and json.loads(text)["driver"] is not None

    def _submit(
        self, job_id: str, arguments: Sequence[str], folder: Path, metadata: dict[str, str], *, install: bool
    ) -> bool:
        return self._jobs.submit(
            job_id,
            ["python", "-m", "orchestrator.main", *arguments],
            folder=folder,
            variables={"PLT_HOME": self._home, VERSIONS: json.dumps(versions())},
            metadata=metadata,
            requirements=requirements() if install else (),
        )

    def _drivers(self, name: str) -> list[Job]:
        return [job for job in self._jobs.all() if job.metadata.get(_STUDY) == name]


class RemoteCommand:
    """A command that runs on the cluster."""

    def __init__(self, jobs: RayJobs, job_id: str) -> None:
        self._jobs, self._job_id = jobs, job_id

    def output(self) -> Iterator[str]:
        """What it prints."""
        return self._jobs.output(self._job_id)

    def exit_code(self) -> int:
        """Once it has ended; 1 when the cluster does not say."""
        job = self._jobs.get(self._job_id)
        return 1 if job is None or job.exit_code is None else job.exit_code

    def stop(self) -> None:
        """End it."""
        self._jobs.stop(self._job_id)


def _turn(job_id: str) -> int:
    """Which driver of its study a job is, from 1."""
    return int(job_id.rpartition("-")[2])
