"""`plt bench decode` and `plt bench train`"""

import json
from pathlib import Path

import click


def _numbers(_context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Whole numbers between commas."""
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of whole numbers such as 1,4", param=parameter) from None


@click.group("bench")
def command() -> None:
    """Measure this machine: every number beside the floor that memory and arithmetic set."""


@command.command("decode")
@click.option("--model", "study_file", type=click.Path(path_type=Path), help="A study file, for its sizes.")
@click.option("--variant", "variants", multiple=True, help="A preset to loop; again for more.  [default: plt, loop]")
@click.option("--loops", default="1,2,3", show_default=True, callback=_numbers, help="Loop counts.")
@click.option("--batch", default="1,4", show_default=True, callback=_numbers, help="Sequences decoded together.")
@click.option("--context", default="512", show_default=True, callback=_numbers, help="Tokens in the caches.")
@click.option("--steps", default=100, show_default=True, help="Timed steps of each setting at each point.")
@click.option("--precision", type=click.Choice(["bfloat16", "float32"]), default="bfloat16", show_default=True)
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Also write the numbers here.")
def decode(
    study_file: Path | None,
    variants: tuple[str, ...],
    loops: tuple[int, ...],
    batch: tuple[int, ...],
    context: tuple[int, ...],
    steps: int,
    precision: str,
    target: Path | None,
) -> None:
    """Decode step by step with real caches: plain, and every variant and loop count, in turn.

    Without --model the shape has 111 million parameters. Studies on this machine hold their training back meanwhile.
    """
    from rich.console import Console

    from orchestrator.bench import decode_shape, print_decode
    from orchestrator.home import write_aside
    from workers.device import device_name
    from workers.device_lock import DeviceLock
    from workers.evaluation.decode_grid import DecodeGrid, measure_grid

    try:
        grid = DecodeGrid(
            shape=decode_shape(study_file),
            variants=variants or ("plt", "loop"),
            loops=loops,
            batch_sizes=batch,
            contexts=context,
            steps=steps,
            precision=precision,  # type: ignore[arg-type]  # one of the two choices
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with DeviceLock(device_name()).exclusive():
        measurement = measure_grid(grid, told=lambda what: click.echo(what, err=True))
    print_decode(Console(), measurement)
    if target is not None:
        write_aside(target, json.dumps(measurement.to_plain(), indent=2) + "\n")


@command.command("train")
@click.option("--model", "study_file", type=click.Path(path_type=Path), help="A study file, for its sizes.")
@click.option("--shape", type=click.Choice(["3M", "34M"]), default="3M", show_default=True, help="Without --model.")
@click.option("--variant", "variants", multiple=True, help="A preset.  [default: plt, loop+clp+share]")
@click.option("--loops", default="1,2", show_default=True, callback=_numbers, help="Loop counts.")
@click.option("--batch", default=4, show_default=True, help="Sequences per step.")
@click.option("--seq", default=512, show_default=True, help="Tokens per sequence.")
@click.option("--window", type=int, help="Instead of the preset's.")
@click.option("--steps", default=10, show_default=True, help="Timed optimizer steps of each setting.")
@click.option("--precision", type=click.Choice(["bfloat16", "float32"]), default="float32", show_default=True)
@click.option("--compile", "compiled", is_flag=True, help="With torch.compile; minutes of compilation on a CPU.")
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Also write the numbers here.")
def train(
    study_file: Path | None,
    shape: str,
    variants: tuple[str, ...],
    loops: tuple[int, ...],
    batch: int,
    seq: int,
    window: int | None,
    steps: int,
    precision: str,
    compiled: bool,
    target: Path | None,
) -> None:
    """Train step by step: plain, and every variant and loop count, in turn; tokens per second, MFU, memory kept."""
    from rich.console import Console

    from orchestrator.bench import print_train, train_shape
    from orchestrator.home import write_aside
    from workers.device import device_name
    from workers.device_lock import DeviceLock
    from workers.evaluation.train_grid import TrainGrid, measure_training

    try:
        grid = TrainGrid(
            shape=train_shape(study_file, shape),
            variants=variants or ("plt", "loop+clp+share"),
            loops=loops,
            batch_size=batch,
            seq_len=seq,
            window=window,
            steps=steps,
            precision=precision,  # type: ignore[arg-type]  # one of the two choices
            compile=compiled,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with DeviceLock(device_name()).exclusive():
        measurement = measure_training(grid, told=lambda what: click.echo(what, err=True))
    print_train(Console(), measurement)
    if target is not None:
        write_aside(target, json.dumps(measurement.to_plain(), indent=2) + "\n")
