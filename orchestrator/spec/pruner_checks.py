"""Whether the pruner of a study could ever stop a trial: a setting without effect is a mistake."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.spec.metrics import evaluated
from orchestrator.spec.problem import Problem

if TYPE_CHECKING:
    from orchestrator.configuration import Configuration
    from orchestrator.spec.study_spec import StudySpec


def pruner_problems(spec: "StudySpec", configurations: Sequence["Configuration"]) -> Iterator[Problem]:
    """Why no trial could ever be judged, if none could.

    A trial is judged before its end, where it is evaluated for that. Points that train for `min_tokens` or less are
    never judged, which is no mistake while others are.
    """
    if spec.pruner.name == "none":
        return
    metrics = [objective.metric for objective in spec.objectives]
    if not any(map(evaluated, metrics)) and "train/loss" not in metrics:
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


def _trained(configuration: "Configuration") -> int:
    """Tokens that a trial trains on in all."""
    steps = configuration.train.steps(configuration.data.seq_len)
    return steps * configuration.train.batch_size * configuration.data.seq_len
