"""`plt stop STUDY`"""

import click


@click.command("stop")
@click.argument("study")
def command(study: str) -> None:
    """Stop STUDY, which another process drives: partial results are kept, `plt resume` continues it."""
    from orchestrator.asking import Asking
    from orchestrator.home import Home
    from orchestrator.requests import RequestKind

    click.echo(Asking(Home.from_environment(), study).ask(RequestKind.STOP))
