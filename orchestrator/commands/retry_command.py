"""`plt retry STUDY --failed`"""

from typing import TYPE_CHECKING

import click

from orchestrator.commands.driving_options import conclude, driving_options, make_listener

if TYPE_CHECKING:
    from orchestrator.listener import Listener
    from orchestrator.study import Study


@click.command("retry")
@click.argument("study")
@click.option("--failed", is_flag=True, required=True, help="Every trial that failed and was not tried again yet.")
@driving_options
def command(study: str, failed: bool, backend: str, address: str | None, quiet: bool, as_json: bool) -> int:
    """Try the failed trials of STUDY again, each as a new trial of the same configuration and seed.

    The failed ones stay as they are. While another process drives the study, that one is told to do it.
    """
    del failed
    from orchestrator.asking import Asking
    from orchestrator.control import require_failed
    from orchestrator.corpora import corpus_fingerprints
    from orchestrator.driver_lock import living_driver
    from orchestrator.driving import drive
    from orchestrator.home import Home
    from orchestrator.requests import RequestKind
    from orchestrator.studies import read_spec, read_study

    home = Home.from_environment()
    spec, _ = read_spec(home, study)
    if living_driver(home, study) is not None:
        click.echo(Asking(home, study).ask(RequestKind.RETRY_FAILED))
        return 0
    require_failed(read_study(home, study))
    listener = make_listener(silent=quiet or as_json)
    record = drive(
        spec,
        {} if address else corpus_fingerprints(spec),
        home.create(),
        backend=backend,
        address=address,
        listener=listener,
        prepare=lambda opened: _retry(opened, listener),
    )
    return conclude(record, as_json)


def _retry(study: "Study", listener: "Listener") -> None:
    listener.notice(f"{len(study.retry_failed())} failed trials are tried again")
