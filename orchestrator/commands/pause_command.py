"""`plt pause STUDY`"""

import click


@click.command("pause")
@click.argument("study")
def command(study: str) -> None:
    """Pause STUDY, which another process drives: its devices are free until `plt resume`."""
    from orchestrator.asking import Asking
    from orchestrator.home import Home
    from orchestrator.requests import RequestKind

    click.echo(Asking(Home.from_environment(), study).ask(RequestKind.PAUSE))
