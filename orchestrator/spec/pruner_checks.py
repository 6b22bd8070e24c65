"""Whether the pruner of a study could ever stop a trial: a setting without effect is a mistake."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.spec.metrics import EVALUATED
from orchestrator.spec.problem import Problem

if TYPE_CHECKING:
    from orchestrator.configuration import Configuration
    from orchestrator.spec.study_spec import StudySpec


def pruner_problems(spec: "StudySpec", configurations: Sequence["Configuration"]) -> Iterator[Problem]:
    """Why no trial could ever be judged, if none could.

    A trial is judged before its end, by what is known then: at evaluations the held-out metrics, at other reports
    `train/loss`. Points that train for `min_tokens` or less are never judged, which is no mistake while others are.
    """
    if spec.pruner.name == "none":
        return
    metrics = [objective.metric for objective in spec.objectives]
    if not EVALUATED.intersection(metrics) and "train/loss" not in metrics:
        yield Problem(
            ("pruner", "name"),
            f"pruner.name is {spec.pruner.name!r}, but no objective is known during training ({', '.join(metrics)}); "
            "add a held-out metric such as val/loss, or use none",
        )
        return
    first = spec.pruner.min_tokens or 1
    longest = max(_trained(configuration) for configuration in configurations)
    if first >= longest:
        yield Problem(
            ("pruner", "min_tokens"),
            f"pruner.min_tokens is {first:,}, and no point trains longer than {longest:,} tokens, so none is ever "
            "judged; lower it",
        )
    elif "train/loss" not in metrics and first > (latest := max(map(_last_judged, configurations))):
        yield Problem(
            spec.place_of("evaluations"),
            f"no trial is evaluated from pruner.min_tokens ({first:,}) on before its end (the last time at "
            f"{latest:,} tokens), so none is ever judged; raise train.evaluations or lower min_tokens",
        )


def _trained(configuration: "Configuration") -> int:
    """Tokens that a trial trains on in all."""
    steps = configuration.train.steps(configuration.data.seq_len)
    return steps * configuration.train.batch_size * configuration.data.seq_len


def _last_judged(configuration: "Configuration") -> int:
    """Tokens at the last evaluation before the one at the end; 0 when there is none."""
    steps, count = configuration.train.steps(configuration.data.seq_len), configuration.train.evaluations
    evaluated = next((step for index in range(count - 1, 0, -1) if (step := -(-steps * index // count)) < steps), 0)
    return evaluated * configuration.train.batch_size * configuration.data.seq_len
