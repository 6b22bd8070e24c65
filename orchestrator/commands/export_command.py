"""`plt export STUDY --format json|csv|parquet`"""

from pathlib import Path

import click

from orchestrator.commands.remote_options import remotable


@click.command("export")
@click.argument("study")
@click.option(
    "file_format", "--format", type=click.Choice(["json", "csv", "parquet"]), default="json", show_default=True
)
@click.option("--output", type=click.Path(path_type=Path), help="Write here instead of to standard output.")
@remotable
def command(study: str, file_format: str, output: Path | None) -> None:
    """Write every trial of STUDY, with its attempts and metrics."""
    from orchestrator.export import export_trials
    from orchestrator.home import Home
    from orchestrator.studies import read_study

    export_trials(read_study(Home.from_environment(), study), file_format, output)
