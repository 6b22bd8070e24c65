"""`plt resume STUDY`"""

import click

from orchestrator.commands.driving_options import conclude, driving_options, make_listener
from orchestrator.commands.remote_options import home_option, remote


@click.command("resume")
@click.argument("study")
@click.option(
    "--configurations",
    type=click.IntRange(1),
    help="Allow so many configurations over the study's whole life from now on.",
)
@home_option
@driving_options
def command(
    study: str,
    configurations: int | None,
    backend: str,
    address: str | None,
    home: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Continue STUDY where it stopped, was killed or paused; its study file is not needed.

    Finished trials are untouched, running ones go on from their checkpoints. While another process drives the study,
    that one is told to go on after a pause, or to allow more configurations.

    With the address of a cluster's Jobs API, such as http://head:8265, it is driven there, as by `plt submit`.
    """
    if address is not None and address.startswith(("http://", "https://")):
        extra = [] if configurations is None else ["--configurations", str(configurations)]
        job, new = remote(address, home).resume(study, extra)
        click.echo(f"{study}: {'driven by' if new else 'being driven by'} job {job.id}")
        return 0
    from orchestrator.asking import Asking
    from orchestrator.corpora import corpus_fingerprints
    from orchestrator.driver_lock import living_driver
    from orchestrator.driving import drive
    from orchestrator.home import Home
    from orchestrator.requests import RequestKind
    from orchestrator.studies import read_spec

    here = Home.from_environment()
    spec, _ = read_spec(here, study)
    if living_driver(here, study) is not None:
        asking = Asking(here, study)
        if configurations is not None:
            click.echo(asking.ask(RequestKind.BUDGET, configurations))
        click.echo(asking.ask(RequestKind.RESUME))
        return 0
    if configurations is not None:
        spec = spec.model_copy(update={"budget": spec.budget.model_copy(update={"configurations": configurations})})
    record = drive(
        spec,
        {} if address else corpus_fingerprints(spec),
        here.create(),
        backend=backend,
        address=address,
        listener=make_listener(silent=quiet or as_json),
    )
    return conclude(record, as_json)
