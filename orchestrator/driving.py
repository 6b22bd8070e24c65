"""Being the driver of a study: refuse, connect, lock, open, run, close. `plt run`, `resume` and `retry` all do this."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING

import click

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.records import StudyRecord
from orchestrator.spec import StudySpec

if TYPE_CHECKING:
    from orchestrator.backends.backend import Backend
    from orchestrator.listener import Listener
    from orchestrator.study import Study
    from orchestrator.tracking.tracker import Tracker


def drive(
    spec: StudySpec,
    corpora: Mapping[str, str],
    home: Home,
    *,
    backend: str,
    address: str | None,
    listener: "Listener",
    prepare: "Callable[[Study], None]" = lambda _study: None,
) -> StudyRecord:
    """Run a study to its end in this process. `prepare` is called once it is open and before anything runs.

    Nothing is created for a request that cannot be met; every such request raises a `PltError`.
    """
    from orchestrator.studies import refuse_existing
    from orchestrator.tracking.sign_in import refuse_sign_in

    refuse_existing(spec, home, corpora)
    refuse_sign_in(home, spec.name)
    with redirect_stdout(sys.stderr):  # Ray prints there when a worker dies; standard output is for the result
        return _drive(spec, corpora, home, backend, address, listener, prepare)


def _drive(
    spec: StudySpec,
    corpora: Mapping[str, str],
    home: Home,
    backend: str,
    address: str | None,
    listener: "Listener",
    prepare: "Callable[[Study], None]",
) -> StudyRecord:
    from orchestrator.checkpoint_copies import discarding, require_usable

    require_usable(home)
    with ThreadPoolExecutor(1) as beside:  # Ray takes seconds to start, mostly waiting
        beside.submit(import_module, "orchestrator.study")
        workers = _make_backend(spec, backend, address)

    from orchestrator.driver_lock import driver_lock
    from orchestrator.interrupts import Interrupts
    from orchestrator.patience import Patience, remedy
    from orchestrator.runner import Runner
    from orchestrator.study import Study
    from orchestrator.tracking.mlflow_tracker import MlflowTracker

    try:
        tracker = MlflowTracker(home, spec.name)
        with (
            Interrupts() as interrupts,  # after Ray, which takes the signals for itself when it starts
            driver_lock(home, spec.name),
            _closed_at_the_end(tracker),
            Study.open(
                spec,
                home,
                corpora=corpora,
                ahead=0 if backend == "local" else workers.slots,
                on_trouble=Patience(listener, interrupts.requested, time.sleep),
            ) as study,
        ):
            if study.notice is not None:
                listener.notice(study.notice)
            prepare(study)
            finished = [trial.number for trial in study.trials() if trial.state.finished]
            with discarding(home, spec.name, finished, listener.notice) as discard_stored:
                return Runner(
                    spec=spec,
                    study=study,
                    backend=workers,
                    tracker=tracker,
                    home=home,
                    clock=time.monotonic,
                    listener=listener,
                    should_stop=interrupts.requested,
                    discard_stored=discard_stored,
                ).run()
    except OSError as error:
        raise ServiceError(
            f"{error.filename or home.root} cannot be written ({error.strerror}); {remedy(error)}, then "
            f"`plt resume {spec.name}`: finished trials are kept"
        ) from error
    finally:
        workers.close()


@contextmanager
def _closed_at_the_end(tracker: "Tracker") -> Iterator[None]:
    """Deliver what is queued, however the study ends; what cannot be delivered is said beside the result."""
    try:
        yield
    finally:
        try:
            tracker.close()
        except ServiceError as error:
            click.echo(f"plt: {error}", err=True)


def _make_backend(spec: StudySpec, name: str, address: str | None) -> "Backend":
    if name == "local":
        from orchestrator.backends.local_backend import LocalBackend

        return LocalBackend()
    from orchestrator.backends.ray_backend import RayBackend
    from orchestrator.stages import benchmark_placement, train_placement

    started = RayBackend(
        train=train_placement(spec),
        benchmark=benchmark_placement(spec),
        address=address,
        lease=spec.retry.worker_lease,
    )
    started.warm(spec.budget.configurations)
    return started
