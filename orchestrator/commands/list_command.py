"""`plt list`"""

import click

from orchestrator.commands.options import echo_json, json_option
from orchestrator.commands.remote_options import remotable


@click.command("list")
@json_option
@remotable
def command(as_json: bool) -> None:
    """List the studies of this home, with state and progress."""
    from orchestrator.home import Home
    from orchestrator.tracking.reader import Reader

    home = Home.from_environment()
    studies = Reader(home).studies()
    if as_json:
        from orchestrator.export import study_summary

        echo_json([study_summary(study) for study in studies])
        return
    if not studies:
        click.echo(f"No study yet in {home.root}. Start one: plt run experiments/quickstart.yaml")
        return
    from rich.console import Console

    from orchestrator.tables import studies_table

    Console().print(studies_table(studies))
