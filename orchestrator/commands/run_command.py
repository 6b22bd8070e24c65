"""`plt run SPEC`"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands.options import echo_json, json_option

if TYPE_CHECKING:
    from orchestrator.backends.backend import Backend
    from orchestrator.home import Home
    from orchestrator.listener import Listener
    from orchestrator.records import StudyRecord
    from orchestrator.spec import StudySpec
    from orchestrator.tracking.tracker import Tracker


@click.command("run")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--backend",
    type=click.Choice(["ray", "local"]),
    default="ray",
    show_default=True,
    help="ray: actors beside each other; local: one after another in this process, repeatable bit for bit.",
)
@click.option("--address", help="A running Ray cluster to use instead of starting one here.")
@click.option("--quiet", is_flag=True, help="Print nothing but the result.")
@json_option
def command(spec: Path, backend: str, address: str | None, quiet: bool, as_json: bool) -> int:
    """Run the study described by SPEC, a YAML file; an existing study of that name is continued.

    Ctrl-C stops it cleanly; running it again goes on where it stopped, finished trials untouched.
    """
    from orchestrator.corpora import corpus_fingerprints
    from orchestrator.home import Home
    from orchestrator.records import StudyState
    from orchestrator.spec import load_spec

    study_spec = load_spec(spec)
    corpora = {} if address else corpus_fingerprints(study_spec)
    home = Home.from_environment().create()
    record = _drive(study_spec, corpora, home, backend, address, _listener(silent=quiet or as_json))
    _print_result(record, spec, as_json)
    return {StudyState.FAILED: 1, StudyState.INTERRUPTED: 130}.get(record.state, 0)


def _drive(
    spec: "StudySpec",
    corpora: dict[str, str],
    home: "Home",
    backend_name: str,
    address: str | None,
    listener: "Listener",
) -> "StudyRecord":
    """Refuse, connect, lock, open, run, close: nothing is created for a request that cannot be met."""
    import time

    from orchestrator.driver_lock import driver_lock
    from orchestrator.errors import ServiceError
    from orchestrator.interrupts import Interrupts
    from orchestrator.runner import Runner
    from orchestrator.study import Study, refuse_existing
    from orchestrator.tracking.mlflow_tracker import MlflowTracker

    refuse_existing(spec, home, corpora)
    backend = _make_backend(spec, backend_name, address)
    try:
        interrupts = Interrupts()  # after Ray, which takes the signal for itself when it starts
        tracker = MlflowTracker(home, spec.name)
        with driver_lock(home, spec.name), _closed_at_the_end(tracker):
            return Runner(
                spec=spec,
                study=Study.open(spec, home, corpora=corpora),
                backend=backend,
                tracker=tracker,
                home=home,
                clock=time.monotonic,
                listener=listener,
                should_stop=interrupts.requested,
            ).run()
    except OSError as error:
        raise ServiceError(
            f"{error.filename or home.root} cannot be written ({error.strerror}); make room, then run it again: "
            "finished trials are kept"
        ) from error
    finally:
        backend.close()


@contextmanager
def _closed_at_the_end(tracker: "Tracker") -> Iterator[None]:
    """Deliver what is queued, however the study ends; what cannot be delivered is said beside the result."""
    from orchestrator.errors import ServiceError

    try:
        yield
    finally:
        try:
            tracker.close()
        except ServiceError as error:
            click.echo(f"plt: {error}", err=True)


def _make_backend(spec: "StudySpec", name: str, address: str | None) -> "Backend":
    if name == "local":
        from orchestrator.backends.local_backend import LocalBackend

        return LocalBackend()
    from orchestrator.backends.ray_backend import RayBackend

    return RayBackend(cpus=spec.resources.train.cpus, gpus=spec.resources.train.gpus, address=address)


def _listener(silent: bool) -> "Listener":
    if silent:
        from orchestrator.listener import Silence

        return Silence()
    from rich.console import Console

    from orchestrator.progress import Progress

    return Progress(Console(stderr=True))


def _print_result(record: "StudyRecord", spec: Path, as_json: bool) -> None:
    if as_json:
        from orchestrator.export import study_summary

        echo_json(study_summary(record))
        return
    from rich.console import Console

    from orchestrator.records import StudyState
    from orchestrator.tables import print_study

    print_study(Console(), record)
    if record.state is StudyState.INTERRUPTED:
        click.echo(f"\nTo continue: plt run {spec}")
    click.echo("\nTo look at it: plt dashboard")
