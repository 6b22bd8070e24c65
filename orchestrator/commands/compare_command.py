"""`plt compare STUDY/TRIAL STUDY/TRIAL ...`"""

import click

from orchestrator.commands.options import echo_json, json_option
from orchestrator.commands.remote_options import remotable


@click.command("compare")
@click.argument("trials", nargs=-1, required=True, metavar="STUDY/TRIAL...")
@json_option
@remotable
def command(trials: tuple[str, ...], as_json: bool) -> None:
    """Compare trials, each named as STUDY/NUMBER: what differs in their knobs first, then every metric.

    The first trial is the baseline. A metric is shown with its 95 % interval over the seeds of the trial's
    configuration.
    """
    from orchestrator.comparison import compare
    from orchestrator.home import Home

    comparison = compare(Home.from_environment(), trials)
    if as_json:
        echo_json(comparison.to_plain())
        return
    from rich.console import Console

    from orchestrator.tables import print_comparison

    print_comparison(Console(), comparison)
