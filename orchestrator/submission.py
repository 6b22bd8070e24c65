"""Submitting a study from a form: it is created at once, and its driver started, exactly once.

The study's name is the key: a double click, a page that is loaded again and a second tab submit equal study files, and
all of them get the one study. Another study file under a name that is taken is refused. The study is created under its
driver's lock, which the driver then takes over.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.control import DriverOptions
from orchestrator.driver_launch import DriverLaunch
from orchestrator.driver_lock import driver_lock
from orchestrator.errors import ServiceError, StudyError
from orchestrator.file_lock import file_lock
from orchestrator.home import Home
from orchestrator.journal import create_journal
from orchestrator.journal_store import journals
from orchestrator.spec import StudySpec
from orchestrator.studies import read_spec, refuse_existing


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What came of it."""

    study: str
    created: bool
    """False when this very study had been submitted before."""


def submit(home: Home, spec: StudySpec, options: DriverOptions, launch: DriverLaunch | None = None) -> Submission:
    """Create the study and start its driver.

    Raises a `StudyError` when the name belongs to another study, a `ServiceError` when the home cannot be written.
    """
    home.create()
    store = journals(home)
    with file_lock(home.studies / ".submission.lock"):
        if store.exists(spec.name):
            _refuse_another(home, spec)
            return Submission(study=spec.name, created=False)
        try:
            with driver_lock(home, spec.name):
                created = create_journal(spec, home, datetime.now(UTC))
        except ServiceError:
            raise
        except OSError as error:
            raise ServiceError(
                f"{store.place(spec.name)} cannot be written ({error.strerror}); make room or set PLT_HOME"
            ) from error
        if not created:
            _refuse_another(home, spec)
            return Submission(study=spec.name, created=False)
        (launch or DriverLaunch(home, spec.name)).start(("resume", spec.name, *options.arguments()))
    return Submission(study=spec.name, created=True)


def _refuse_another(home: Home, spec: StudySpec) -> None:
    refuse_existing(spec, home, {})
    stored, _ = read_spec(home, spec.name)
    if stored.to_plain() != spec.to_plain():
        raise StudyError(
            f"study {spec.name} exists, with another budget, pruner, resources or question; give this one another name"
        )
