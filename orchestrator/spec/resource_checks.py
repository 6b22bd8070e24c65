"""Workers and machines that cannot be as the file says: alone, or with a batch or a compilation."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.spec.problem import Path, Problem

if TYPE_CHECKING:
    from orchestrator.configuration import Configuration
    from orchestrator.spec.study_spec import StudySpec

_OF_SEVERAL = ("parallel", "placement")
"""Keys of `resources` that say something of several workers only."""


def resource_problems(spec: "StudySpec") -> Iterator[Problem]:
    """What is wrong with `resources` whatever the point."""
    resources = spec.resources
    workers, gpus = resources.workers_per_trial, resources.train.gpus
    if workers == 1:
        for key in _OF_SEVERAL:
            value = getattr(resources, key)
            if value is not None:
                yield Problem(
                    ("resources", key),
                    f"resources.{key} is {value!r} and has no effect with one worker; "
                    "leave it out, or set resources.workers_per_trial",
                )
    elif gpus is not None and gpus not in (0, 1):
        yield Problem(
            ("resources", "train", "gpus"),
            f"resources.train.gpus is {gpus:g}; with {workers} workers per trial it must be 1 or 0: each of them "
            "computes on a whole GPU of its own, or on the CPU",
        )


def gang_problems(spec: "StudySpec", configuration: "Configuration") -> Iterator[tuple[Path, str]]:
    """What several workers cannot do at one point: where, and a sentence."""
    resources, train = spec.resources, configuration.train
    workers = resources.workers_per_trial
    if train.batch_size % workers:
        yield (
            spec.place_of("batch_size"),
            f"batch_size is {train.batch_size}; it must be a multiple of resources.workers_per_trial ({workers}): "
            "every worker takes as many sequences of a batch",
        )
    if workers > 1 and resources.parallel == "fsdp" and train.compile == "on":
        yield (
            spec.place_of("compile"),
            "compile is 'on', which resources.parallel 'fsdp' cannot do; use auto or off, or parallel: ddp",
        )
