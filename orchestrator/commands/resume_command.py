"""`plt resume STUDY`"""

import click

from orchestrator.commands.driving_options import conclude, driving_options, make_listener


@click.command("resume")
@click.argument("study")
@click.option(
    "--configurations",
    type=click.IntRange(1),
    help="Allow so many configurations over the study's whole life from now on.",
)
@driving_options
def command(
    study: str, configurations: int | None, backend: str, address: str | None, quiet: bool, as_json: bool
) -> int:
    """Continue STUDY where it stopped, was killed or paused; its study file is not needed.

    Finished trials are untouched, running ones go on from their checkpoints. While another process drives the study,
    that one is told to go on after a pause, or to allow more configurations.
    """
    from orchestrator.asking import Asking
    from orchestrator.corpora import corpus_fingerprints
    from orchestrator.driver_lock import living_driver
    from orchestrator.driving import drive
    from orchestrator.home import Home
    from orchestrator.requests import RequestKind
    from orchestrator.studies import read_spec

    home = Home.from_environment()
    spec, _ = read_spec(home, study)
    if living_driver(home, study) is not None:
        asking = Asking(home, study)
        if configurations is not None:
            click.echo(asking.ask(RequestKind.BUDGET, configurations))
        click.echo(asking.ask(RequestKind.RESUME))
        return 0
    if configurations is not None:
        spec = spec.model_copy(update={"budget": spec.budget.model_copy(update={"configurations": configurations})})
    record = drive(
        spec,
        {} if address else corpus_fingerprints(spec),
        home.create(),
        backend=backend,
        address=address,
        listener=make_listener(silent=quiet or as_json),
    )
    return conclude(record, as_json)
