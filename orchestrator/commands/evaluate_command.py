"""`plt evaluate STUDY/TRIAL`"""

import click

from orchestrator.commands.options import echo_json, json_option


@click.command("evaluate")
@click.argument("trial", metavar="STUDY/TRIAL")
@click.option(
    "--set", "sets", multiple=True, help="Code set, humaneval or mbpp; may be repeated. See `plt data fetch`."
)
@click.option("--samples", type=click.IntRange(0, 1000), default=0, show_default=True, help="Answers per problem, run.")
@click.option("-k", "ks", type=click.IntRange(1), multiple=True, default=[1], help="pass@k; may be repeated.")
@click.option("--temperature", type=click.FloatRange(0), default=0.8, show_default=True, help="0 is greedy.")
@click.option("--outputs", type=click.IntRange(0), default=100, show_default=True, help="MBPP calls to predict.")
@click.option("--lines", type=click.IntRange(0), default=100, show_default=True, help="Held-out lines to complete.")
@click.option("--harness", multiple=True, metavar="TASK", help="Task of lm-evaluation-harness; may be repeated.")
@click.option("--task-folder", type=click.Path(exists=True, file_okay=False), help="Where further harness tasks are.")
@json_option
def command(
    trial: str,
    sets: tuple[str, ...],
    samples: int,
    ks: tuple[int, ...],
    temperature: float,
    outputs: int,
    lines: int,
    harness: tuple[str, ...],
    task_folder: str | None,
    as_json: bool,
) -> None:
    """Score the code that the model of a finished trial writes; a trial is named STUDY/NUMBER.

    Bits per byte of reference solutions and completed lines say something about small models; pass@k, for which what
    the model writes is run in restricted processes, only about large ones.
    """
    from orchestrator.code_evaluation import evaluate_code
    from orchestrator.errors import ServiceError
    from orchestrator.home import Home
    from workers.code.wheel import WHEELS

    unknown = [name for name in sets if name not in WHEELS]
    if unknown:
        raise ServiceError(f"{unknown[0]!r} is no code set; choose from {', '.join(WHEELS)}")
    numbers = {"--samples": samples, "--temperature": temperature, "--outputs": outputs, "--lines": lines}
    options = [text for name, value in numbers.items() for text in (name, str(value))]
    options += ["--k", *map(str, ks), "--sets", *sets, "--harness", *harness]
    options += ["--task-folder", task_folder] if task_folder else []
    metrics = evaluate_code(Home.from_environment(), trial, options)
    if as_json:
        echo_json(metrics)
        return
    width = max(map(len, metrics))
    for name, value in metrics.items():
        click.echo(f"{name:{width}}  {value:.4f}")
