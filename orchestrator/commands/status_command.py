"""`plt status STUDY`"""

import click

from orchestrator.commands.options import echo_json, json_option
from orchestrator.commands.remote_options import remotable


@click.command("status")
@click.argument("study")
@json_option
@remotable
def command(study: str, as_json: bool) -> None:
    """Show how STUDY stands: progress, failures by reason, the front, and what is not tracked yet."""
    from orchestrator.home import Home
    from orchestrator.live_state import read_live
    from orchestrator.studies import read_study
    from orchestrator.tracking.untracked import untracked

    home = Home.from_environment()
    record = read_study(home, study)
    missing = untracked(home, study)
    live = read_live(home.live(study)) if record.driver is not None else None
    queued_because = live.queued_because if live is not None else None
    if as_json:
        from orchestrator.export import study_summary

        echo_json({**study_summary(record), "queued_because": queued_because, "untracked": missing})
        return
    from rich.console import Console

    from orchestrator.tables import print_study

    print_study(Console(), record)
    if queued_because is not None:
        click.echo(f"queued because: {queued_because}")
    if missing is not None:
        click.echo(missing)
