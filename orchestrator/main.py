"""The command line: `plt COMMAND`.

Importing this module costs milliseconds: every command imports what it needs when it runs, so `plt --help` loads
neither torch nor ray nor mlflow. A `PltError` becomes one line on standard error and exit code 2; 0 is done, 1 a study
that failed, 130 an interrupt.
"""

import importlib
import os
import sys

import click

from orchestrator.errors import PltError

_COMMANDS = {
    "run": "Run a study here, with live progress; run it again to continue it.",
    "submit": "Run a study on a Ray cluster, which drives it when this machine is gone.",
    "resume": "Continue a study that stopped, was killed or paused.",
    "stop": "Stop a running study; partial results are kept.",
    "pause": "Pause a running study; its devices are free.",
    "retry": "Try the failed trials of a study again.",
    "list": "List the studies of this home.",
    "status": "Show how a study stands, and its best configurations.",
    "watch": "Watch a study that another process drives, live.",
    "logs": "Print what an attempt of a trial printed.",
    "compare": "Compare trials: what differs, and what came of it.",
    "recommend": "Say which loop count, window and gate to take, and how sure that is.",
    "report": "Write the recommendation with evidence and plots as one HTML file.",
    "export": "Write every trial of a study as JSON, CSV or Parquet.",
    "export-model": "Write a trial's model for transformers, vLLM, mlx-lm or llama.cpp.",
    "import-model": "Take a checkpoint that others wrote into this home.",
    "evaluate": "Score the code that a trained model writes: HumanEval, MBPP, held-out lines.",
    "bench": "Measure this machine: decode latency beside its floor.",
    "data": "Fetch what models are scored on: `plt data fetch`.",
    "dashboard": "Open the dashboard on this machine.",
    "doctor": "Check what is installed, writable and reachable, and how fast.",
}


_SUBMITTED_WITH = "PLT_SUBMITTED_WITH"


class _LazyGroup(click.Group):
    """Finds a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the story, not of the alphabet."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, from `orchestrator.commands.NAME_command`, dashes as underscores."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"orchestrator.commands.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `plt --help`, without importing any command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="plt-orchestrator")
def cli() -> None:
    """Which loop count, window and gate should your Parallel Loop Transformer have?

    PLT_HOME (default ./plt-home) is where studies, data and measurements are kept; PLT_STORAGE=postgresql://... keeps
    the studies in a database, MLFLOW_TRACKING_URI sends tracked runs to a server of yours.
    """


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give the exit code."""
    try:
        _refuse_other_versions()
        code = cli.main(args=arguments, prog_name="plt", standalone_mode=False)
    except PltError as error:
        click.echo(f"plt: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("plt: interrupted", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return code if isinstance(code, int) else 0


def _refuse_other_versions() -> None:
    """A command that was submitted to this cluster runs only with the packages that it was submitted from."""
    if _SUBMITTED_WITH not in os.environ:
        return
    from orchestrator.errors import ResourceError
    from orchestrator.shipment import differences

    found = differences()
    if found:
        raise ResourceError(
            f"this cluster has other versions than the machine that submitted: {'; '.join(found)}; install the same "
            "there, or `plt submit --install`"
        )


if __name__ == "__main__":
    sys.exit(main())
