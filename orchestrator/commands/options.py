"""Options and arguments that several commands share."""

import json
from collections.abc import Callable
from typing import Any

import click


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`: print plain data for programs instead of tables for people."""
    return click.option("as_json", "--json", is_flag=True, help="Print JSON for programs.")(function)


def echo_json(data: object) -> None:
    """Print plain data as JSON; times as ISO 8601."""
    click.echo(json.dumps(data, indent=2, default=str))
