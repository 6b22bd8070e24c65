"""Everything about the code that one trained model writes, as metrics.

    python -m workers.code.report MODEL --data '{"corpus": "stdlib"}' --data-folder plt-home/data [--sets humaneval ...]

prints one JSON object. `data` is the plain form of the `DataConfig` that the model was trained with, which names its
tokenizer. `plt evaluate STUDY/TRIAL` fills all of that in.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from workers.code.executor import IsolationError
from workers.code.harness import harness_metrics
from workers.code.line_completion import complete_lines, lines_of
from workers.code.output_prediction import predict_outputs, predictions_of
from workers.code.pass_at_k import count_passed, mean_pass_at_k
from workers.code.problem import Problem, load_problems
from workers.code.reference import reference_bits
from workers.code.validity import valid_share
from workers.code.wheel import WHEELS
from workers.code.writer import Writer
from workers.config import DataConfig
from workers.data import DataError
from workers.data.corpus import read_corpus
from workers.data.prepare import prepare_tokenizer
from workers.models import load_pretrained

_CONTEXT_BYTES_PER_SLOT = 2
"""Bytes of context that a line completion gets for every slot of half a window, before tokens that do not fit go."""


def code_metrics(
    writer: Writer, problems: Sequence[Problem], name: str, *, samples: int, ks: Sequence[int], seed: int = 0
) -> dict[str, float]:
    """Bits per byte of the references, and, with samples, pass@k and validity of what is written."""
    length = writer.model.config.max_position_embeddings
    metrics = {f"{name}/bits_per_byte": reference_bits(writer.model, problems, writer.tokenizer, length, 8)}
    if samples:
        answers = [writer.write(each.prompt, each.stops, samples=samples, seed=seed) for each in problems]
        passed = count_passed(problems, answers)
        metrics |= {f"{name}/pass_at_{k}": mean_pass_at_k(samples, passed, k) for k in ks if k <= samples}
        programs = (problem.prompt + answer for problem, own in zip(problems, answers, strict=True) for answer in own)
        metrics[f"{name}/valid_syntax"] = valid_share(programs)
    return metrics


def report(
    model_folder: Path,
    data: DataConfig,
    data_folder: Path,
    sets: Sequence[str],
    *,
    samples: int,
    ks: Sequence[int],
    temperature: float,
    outputs: int,
    lines: int,
    harness: Sequence[str] = (),
    task_folder: Path | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """All metrics of one model; `outputs` and `lines` are numbers of questions, 0 leaves them out.

    `harness` names tasks of lm-evaluation-harness, `task_folder` a place with further ones.
    """
    problems = {name: load_problems(data_folder, name) for name in sets}
    tokenizer = prepare_tokenizer(data, data_folder)
    model = load_pretrained(model_folder)
    sampled = Writer(model=model, tokenizer=tokenizer, temperature=temperature)
    greedy = Writer(model=model, tokenizer=tokenizer, max_new_tokens=64)
    metrics: dict[str, float] = {}
    for name, own in problems.items():
        metrics |= code_metrics(sampled, own, name, samples=samples, ks=ks, seed=seed)
    if outputs and "mbpp" in problems:
        questions = predictions_of(problems["mbpp"])
        metrics |= predict_outputs(greedy, questions[:: max(1, len(questions) // outputs)][:outputs])
    if lines:
        assert data.text is not None  # it has a tokenizer
        held_out = b"\n".join(document.text for document in read_corpus(data.text).split()[1])
        context = _CONTEXT_BYTES_PER_SLOT * model.config.max_position_embeddings
        metrics |= complete_lines(greedy, lines_of(held_out, context, lines))
    if harness:
        metrics |= harness_metrics(greedy, harness, task_folder)
    return metrics


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line above."""
    parser = argparse.ArgumentParser(prog="python -m workers.code.report")
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=json.loads, required=True)
    parser.add_argument("--data-folder", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", choices=list(WHEELS), default=[])
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--k", type=int, nargs="+", default=[1])
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--harness", nargs="*", default=[])
    parser.add_argument("--task-folder", type=Path)
    parser.add_argument("--outputs", type=int, default=100)
    parser.add_argument("--lines", type=int, default=100)
    given = parser.parse_args(arguments)
    try:
        metrics = report(
            given.model,
            DataConfig(**given.data),
            given.data_folder,
            given.sets,
            samples=given.samples,
            ks=given.k,
            temperature=given.temperature,
            outputs=given.outputs,
            lines=given.lines,
            harness=given.harness,
            task_folder=given.task_folder,
        )
    except (DataError, IsolationError, ModuleNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(metrics, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
