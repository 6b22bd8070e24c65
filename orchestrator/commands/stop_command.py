"""`plt stop STUDY`"""

import click

from orchestrator.commands.remote_options import remotable


@click.command("stop")
@click.argument("study")
@remotable
def command(study: str) -> None:
    """Stop STUDY, which another process drives: partial results are kept, `plt resume` continues it."""
    from orchestrator.asking import Asking
    from orchestrator.home import Home
    from orchestrator.requests import RequestKind

    click.echo(Asking(Home.from_environment(), study).ask(RequestKind.STOP))
