"""`plt watch STUDY`"""

import json

import click

from orchestrator.commands.options import json_option
from orchestrator.commands.remote_options import remotable


@click.command("watch")
@click.argument("study")
@json_option
@remotable
def command(study: str, as_json: bool) -> None:
    """Watch STUDY, which another process drives, until it ends or Ctrl-C; the study goes on.

    With --json one line per second: the summary of `plt status`, with the running trials.
    """
    from orchestrator.home import Home
    from orchestrator.watch import Watch

    snapshots = Watch(Home.from_environment(), study).snapshots()
    try:
        if as_json:
            for snapshot in snapshots:
                click.echo(json.dumps(snapshot.to_plain()))
            return
        from rich.console import Console

        from orchestrator.watch_view import WatchView

        WatchView(Console()).show(snapshots)
    except KeyboardInterrupt:
        click.echo("", err=True)
