"""Options of the commands that drive a study in the foreground, and how they end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from orchestrator.commands.options import echo_json, json_option

if TYPE_CHECKING:
    from orchestrator.listener import Listener
    from orchestrator.records import StudyRecord


def driving_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--backend`, `--address`, `--quiet` and `--json`."""
    for option in (
        json_option,
        click.option("--quiet", is_flag=True, help="Print nothing but the result."),
        click.option("--address", help="A running Ray cluster to use instead of starting one here."),
        click.option(
            "--backend",
            type=click.Choice(["ray", "local"]),
            default="ray",
            show_default=True,
            help="ray: actors beside each other; local: one after another in this process, repeatable bit for bit.",
        ),
    ):
        function = option(function)
    return function


def make_listener(silent: bool) -> "Listener":
    """Progress on standard error, or nothing."""
    if silent:
        from orchestrator.listener import Silence

        return Silence()
    from rich.console import Console

    from orchestrator.progress import Progress

    return Progress(Console(stderr=True))


def conclude(record: "StudyRecord", as_json: bool) -> int:
    """Print how a study ended; the exit code."""
    from orchestrator.records import StudyState

    if as_json:
        from orchestrator.export import study_summary

        echo_json(study_summary(record))
    else:
        from rich.console import Console

        from orchestrator.tables import print_study

        print_study(Console(), record)
        if record.state is StudyState.INTERRUPTED:
            click.echo(f"\nTo continue: plt resume {record.name}")
        click.echo("\nTo look at it: plt dashboard")
    return {StudyState.FAILED: 1, StudyState.INTERRUPTED: 130}.get(record.state, 0)
