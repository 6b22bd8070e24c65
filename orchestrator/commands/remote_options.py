"""`--address` and `--home` of commands that can run on a cluster as well as here."""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from orchestrator.remote import Remote

address_option = click.option(
    "--address", help="The cluster's Jobs API, such as http://head:8265: ask there instead of here."
)
home_option = click.option(
    "--home",
    envvar="PLT_CLUSTER_HOME",
    help="PLT_HOME on the cluster, a folder that all of its nodes share.  [env: PLT_CLUSTER_HOME]",
)


def remote(address: str, home: str | None) -> "Remote":
    """The cluster; a usage error without its home."""
    from orchestrator.backends.ray_jobs import RayJobs
    from orchestrator.remote import Remote

    if not home:
        raise click.UsageError("--address needs --home (or PLT_CLUSTER_HOME): PLT_HOME on the cluster")
    return Remote(RayJobs(address), home)


def remotable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run the command there when an address is given: its output and exit code are those of the cluster's `plt`."""

    @functools.wraps(function)
    def here_or_there(*, address: str | None, home: str | None, **given: Any) -> Any:
        if address is None:
            return function(**given)
        return forward(remote(address, home))

    return address_option(home_option(here_or_there))


def forward(there: "Remote") -> int:
    """Run the current command on the cluster, print what it prints, and give its exit code."""
    context = click.get_current_context()
    command = there.command([context.info_name or "", *_arguments(context)])
    try:
        print_lines(command.output())
    except KeyboardInterrupt:
        command.stop()
        raise
    return command.exit_code()


def print_lines(lines: Iterator[str]) -> None:
    """As they come."""
    for line in lines:
        click.echo(line)
        sys.stdout.flush()


def _arguments(context: click.Context) -> list[str]:
    """The command's arguments as they were given, without `--address` and `--home`."""
    found: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in ("address", "home") or value is None or value is False:
            continue
        values = [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
        if isinstance(parameter, click.Option):
            name = parameter.opts[-1]
            found += [name] if value is True else [part for one in values for part in (name, one)]
        else:
            found += values
    return found
