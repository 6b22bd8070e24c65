"""What the stages of a trial reserve: from the study file's `resources` to placements."""

from dataclasses import replace

from orchestrator.backends.placement import Placement
from orchestrator.spec import StudySpec
from orchestrator.spec.sections import Needs


def train_placement(spec: StudySpec) -> Placement:
    """Of a training attempt, with all of its workers."""
    resources = spec.resources
    placement = Placement(
        cpus=resources.train.cpus,
        gpus=resources.train.gpus,
        workers=resources.workers_per_trial,
        strategy=resources.placement or "pack",
    )
    return _with_needs(placement, resources.train, spec)


def benchmark_placement(spec: StudySpec) -> Placement | None:
    """Of a decode benchmark that needs another machine than training; None has it run where training does.

    There it holds the device alone by the lock on it, whatever share of it was reserved.
    """
    train, benchmark = spec.resources.train, spec.resources.benchmark
    from_cpu_to_gpu = benchmark.gpus == 1 and train.gpus == 0
    if spec.benchmark is None or not (benchmark.elsewhere or from_cpu_to_gpu):
        return None
    gpus = 1.0 if from_cpu_to_gpu else train.gpus
    return _with_needs(Placement(cpus=benchmark.cpus or train.cpus, gpus=gpus), benchmark, spec)


def _with_needs(placement: Placement, share: Needs, spec: StudySpec) -> Placement:
    return replace(
        placement,
        timeout=spec.resources.placement_timeout or placement.timeout,
        memory=share.memory or 0,
        accelerator=share.accelerator,
        labels=share.labels or {},
        custom=share.resources or {},
    )
