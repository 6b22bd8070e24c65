"""`plt recommend STUDY`"""

import click

from orchestrator.commands.options import echo_json, json_option


@click.command("recommend")
@click.argument("study")
@click.option("--where", multiple=True, metavar="CONSTRAINT", help="Also require, e.g. 'decode/ms_per_token <= 12'.")
@click.option("--worth", type=float, help="Least gain that makes one more loop worthwhile, in the objective's unit.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Certainty that is asked for.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@json_option
def command(
    study: str, where: tuple[str, ...], worth: float | None, level: float, as_markdown: bool, as_json: bool
) -> None:
    """Say which loop count, window and gate to take from STUDY, why, and how sure that is.

    The answer is the smallest loop count from which no larger one pays: whose best configuration is better by at least
    --worth for every loop added. By default that is one point of an accuracy, or one percent of a loss or of bits per
    byte. An answer that is called sure at 95 % is wrong in at most 5 of 100 such studies.
    """
    from dataclasses import asdict

    from orchestrator.home import Home
    from orchestrator.membership import memberships
    from orchestrator.recommendation import markdown, recommend, text
    from orchestrator.studies import read_study

    record = read_study(Home.from_environment(), study)
    found = recommend(record, where=where, worth=worth, level=level)
    if as_json:
        front = {name: asdict(standing) for name, standing in memberships(record, level).items()}
        echo_json({**found.to_plain(), "front": front})
    else:
        click.echo(markdown(found) if as_markdown else text(found))
