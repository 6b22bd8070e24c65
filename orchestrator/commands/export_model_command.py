"""`plt export-model STUDY/TRIAL|FOLDER --out DIR`"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from workers.interop.verify import Agreement


def _bytes(context: click.Context, parameter: click.Parameter, value: str) -> int:
    del context, parameter
    from orchestrator.quantity import size

    try:
        amount = size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not isinstance(amount, int) or amount < 1:
        raise click.BadParameter("must be 1 byte or more")
    return amount


@click.command("export-model")
@click.argument("model", metavar="STUDY/TRIAL|FOLDER")
@click.option(
    "file_format",
    "--format",
    type=click.Choice(["hf", "llama", "iquestloopcoder", "iquestpltcoder", "gguf"]),
    default="hf",
    show_default=True,
    help="hf: the Hugging Face layout that most engines read; the next three name one; gguf: llama.cpp, one loop.",
)
@click.option("--out", "target", type=click.Path(path_type=Path), required=True, help="The new folder.")
@click.option("--best", is_flag=True, help="The model of the trial's best evaluation instead of its last one.")
@click.option(
    "--shard-size",
    default="5GB",
    show_default=True,
    callback=_bytes,
    help="Largest weight file, for instance 500MB.",
)
@click.option("--verify", is_flag=True, help="Run the installed engines on it and print how well they agree with us.")
@click.option(
    "pythons",
    "--verify-with",
    multiple=True,
    metavar="PYTHON",
    help="With --verify, also the engines of another environment: the path of its python. May be repeated.",
)
def command(
    model: str, file_format: str, target: Path, best: bool, shard_size: int, verify: bool, pythons: tuple[str, ...]
) -> int:
    """Write a trained model, or any checkpoint folder, so that other engines load it.

    A plain transformer becomes a Llama. A looped one becomes `iquestloopcoder`, which vLLM and mlx-lm read, where that
    computes the same, and else `iquestpltcoder` with the code for transformers in the folder. A layout that would
    compute something else is refused with the reason. Exit code 1: an engine disagrees.
    """
    from orchestrator.errors import ServiceError
    from orchestrator.home import Home
    from orchestrator.model_source import find_model
    from workers.interop.errors import InteropError
    from workers.interop.export import export_gguf, export_model
    from workers.interop.layout import Layout

    if pythons and not verify:
        raise ServiceError("--verify-with has no effect without --verify; add it")
    if verify and file_format == "gguf":
        raise ServiceError("--verify runs Hugging Face folders; with --format hf llama.cpp is asked about them too")
    source = find_model(Home.from_environment(), model, best=best)
    given: dict[str, Any] = {
        "tokenizer": source.tokenizer,
        "tokenizer_folder": source.tokenizer_folder,
        "origin": source.origin,
    }
    try:
        if file_format == "gguf":
            files = export_gguf(source.folder, target, **given)
            click.echo(f"{target}: {', '.join(files)}")
            return 0
        exported = export_model(
            source.folder,
            target,
            layout=None if file_format == "hf" else Layout(file_format),
            shard_bytes=shard_size,
            **given,
        )
        click.echo(f"{target}: layout {exported.layout}, {', '.join(exported.files)}")
        return _verified(target, pythons) if verify else 0
    except InteropError as error:
        raise ServiceError(str(error)) from error


def _verified(target: Path, pythons: tuple[str, ...]) -> int:
    import sys

    from workers.interop.verify import verify

    agreements = verify(target, (sys.executable, *pythons))
    for agreement in agreements:
        click.echo(_line(agreement))
    if not any(agreement.difference is not None for agreement in agreements):
        click.echo("no engine that reads this layout is installed; pip install transformers, or use --verify-with")
    return 0 if all(agreement.agrees for agreement in agreements) else 1


def _line(agreement: "Agreement") -> str:
    name = f"{agreement.engine} {agreement.version}"
    if agreement.difference is None:
        return f"{'FAIL' if agreement.failed else '--  '} {name}: {agreement.note}"
    said = f"largest difference of a log probability {agreement.difference:.1e} (limit {agreement.limit:.0e})"
    return f"{'ok  ' if agreement.agrees else 'FAIL'} {name}: {said}, same choice {agreement.same_choice:.1%}"
