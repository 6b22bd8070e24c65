"""`plt submit SPEC`"""

from pathlib import Path

import click

from orchestrator.commands.remote_options import home_option, print_lines, remote


@click.command("submit")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--address", required=True, help="The cluster's Jobs API, such as http://head:8265.")
@home_option
@click.option("--install", is_flag=True, help="Have the cluster install the packages of this machine for the job.")
@click.option("--follow", is_flag=True, help="Print what the driver prints until it ends; Ctrl-C leaves it running.")
def command(spec: Path, address: str, home: str | None, install: bool, follow: bool) -> int:
    """Run the study described by SPEC on a Ray cluster; it goes on when this machine is gone.

    The code of this installation and the study file travel there, nothing else. Submitting the same file again is the
    same study: one that is being driven is left alone, one that has stopped goes on.
    """
    from orchestrator.spec import load_spec

    name = load_spec(spec, files_here=False).name
    there = remote(address, home)
    job, new = there.submit(name, spec, install=install)
    click.echo(name)
    done = "driven by" if new else "being driven already by"
    click.echo(f"{done} job {job.id}; `plt watch {name} --address {address}` shows it", err=True)
    if follow:
        try:
            print_lines(there.output_of_driver(name))
        except KeyboardInterrupt:
            click.echo("the study goes on", err=True)
    return 0
