"""`plt logs STUDY/TRIAL`"""

import click

from orchestrator.commands.remote_options import address_option, forward, home_option, print_lines, remote


@click.command("logs")
@click.argument("trial", metavar="STUDY/TRIAL")
@click.option("--attempt", type=click.IntRange(min=1), help="Which attempt, from 1; by default the latest.")
@click.option("--follow", is_flag=True, help="Go on with what is printed until the trial has finished.")
@address_option
@home_option
def command(trial: str, attempt: int | None, follow: bool, address: str | None, home: str | None) -> int:
    """Print what an attempt of a trial printed and logged; a trial is named STUDY/NUMBER.

    With --address, STUDY alone prints what the driver of a submitted study printed.
    """
    if address is not None:
        there = remote(address, home)
        if "/" in trial:
            return forward(there)
        print_lines(there.output_of_driver(trial))
        return 0
    _print_here(trial, attempt, follow)
    return 0


def _print_here(trial: str, attempt: int | None, follow: bool) -> None:
    from orchestrator.attempt_output import AttemptOutput
    from orchestrator.home import Home
    from orchestrator.trial_name import parse_trial_name

    study, number = parse_trial_name(trial)
    output = AttemptOutput(Home.from_environment(), study, number, attempt)
    printed = False
    try:
        for line in output.follow() if follow else output.lines():
            click.echo(line)
            printed = True
    except KeyboardInterrupt:
        click.echo("", err=True)
        return
    if not printed:
        click.echo(f"plt: {output.why_empty()}", err=True)
