"""`plt doctor`"""

import click

from orchestrator.commands.options import echo_json, json_option


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Check what is installed, writable and reachable, and how fast; exit code 1 when something is not well."""
    from dataclasses import asdict

    from orchestrator.doctor import examine
    from orchestrator.home import Home

    checks = examine(Home.from_environment())
    if as_json:
        echo_json([asdict(check) for check in checks])
    else:
        for check in checks:
            mark = click.style("ok  ", fg="green") if check.ok else click.style("FAIL", fg="red")
            click.echo(
                f"{mark} {check.name}: {check.detail}"
                + (f" -> {check.remedy}" if check.remedy and not check.ok else "")
            )
    return 0 if all(check.ok for check in checks) else 1
