"""`plt pause STUDY`"""

import click

from orchestrator.commands.remote_options import remotable


@click.command("pause")
@click.argument("study")
@remotable
def command(study: str) -> None:
    """Pause STUDY, which another process drives: its devices are free until `plt resume`."""
    from orchestrator.asking import Asking
    from orchestrator.home import Home
    from orchestrator.requests import RequestKind

    click.echo(Asking(Home.from_environment(), study).ask(RequestKind.PAUSE))
