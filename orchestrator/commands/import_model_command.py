"""`plt import-model FOLDER|hf:NAME`"""

from pathlib import Path

import click


@click.command("import-model")
@click.argument("source", metavar="FOLDER|hf:OWNER/MODEL")
@click.option("--out", type=click.Path(path_type=Path), help="The new folder; by default models/NAME in PLT_HOME.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16"]),
    help="Convert the weights; by default they stay as they are.",
)
def command(source: str, out: Path | None, dtype: str | None) -> None:
    """Take a Llama, iquestloopcoder or iquestpltcoder checkpoint into this home, weights as they are.

    The result can be fine-tuned as a study (`model: {from: FOLDER}`, for instance with another loop count), exported
    again, and loaded from Python. Only safetensors are read and no code in the folder is run.
    """
    from orchestrator.errors import ServiceError
    from orchestrator.home import Home
    from workers.interop.errors import InteropError
    from workers.interop.hub import PREFIX, fetch
    from workers.interop.reading import import_model

    name = source.removeprefix(PREFIX)
    target = out or Home.from_environment().model(Path(name).resolve().name)
    try:
        folder = fetch(name) if source.startswith(PREFIX) else Path(source)
        imported = import_model(folder, target, dtype)
    except InteropError as error:
        raise ServiceError(str(error)) from error
    config = imported.config
    loops = "one loop" if config.num_loops == 1 else f"{config.num_loops} loops"
    click.echo(
        f"{imported.folder}: {imported.layout or 'a checkpoint of ours'}, {imported.parameters:,} parameters, {loops}, "
        f"{imported.dtype}"
    )
    click.echo(f"To fine-tune it: model: {{from: {imported.folder}}} in a study file")
