"""`plt status STUDY`"""

import click

from orchestrator.commands.options import echo_json, json_option


@click.command("status")
@click.argument("study")
@json_option
def command(study: str, as_json: bool) -> None:
    """Show how STUDY stands: progress, failures by reason, and the front."""
    from orchestrator.home import Home
    from orchestrator.studies import read_study

    record = read_study(Home.from_environment(), study)
    if as_json:
        from orchestrator.export import study_summary

        echo_json(study_summary(record))
        return
    from rich.console import Console

    from orchestrator.tables import print_study

    print_study(Console(), record)
