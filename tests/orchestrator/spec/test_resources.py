"""Workers and machines: what a study file may ask for, what is refused with its line, what the stages reserve."""

from pathlib import Path

import pytest

from orchestrator.backends.placement import Placement
from orchestrator.errors import SpecError
from orchestrator.spec import StudySpec
from orchestrator.spec.load import load_spec
from orchestrator.stages import benchmark_placement, train_placement

TRAIN, RESOURCES = 5, 20
"""Lines of the example."""


def read(folder: Path, example: str, lines: dict[int, str]) -> StudySpec:
    path = folder / "study.yaml"
    path.write_text("\n".join(lines.get(number, line) for number, line in enumerate(example.splitlines(), 1)))
    return load_spec(path)


@pytest.mark.parametrize(
    ("lines", "at", "expected"),
    [
        (
            {RESOURCES: "resources: {workers_per_trial: 3}"},
            TRAIN,
            "batch_size is 16; it must be a multiple of resources.",
        ),
        (
            {RESOURCES: "resources: {workers_per_trial: 2, train: {gpus: 0.5}}"},
            RESOURCES,
            "resources.train.gpus is 0.5; with 2 workers per trial it must be 1 or 0",
        ),
        (
            {RESOURCES: "resources: {parallel: fsdp}"},
            RESOURCES,
            "resources.parallel is 'fsdp' and has no effect with one",
        ),
        ({RESOURCES: "resources: {placement: spread}"}, RESOURCES, "placement is 'spread' and has no effect with one"),
        (
            {RESOURCES: "resources: {workers_per_trial: 2, parallel: tensor}"},
            RESOURCES,
            "resources.parallel is 'tensor'; it must be 'ddp' or 'fsdp'",
        ),
        (
            {RESOURCES: "resources: {workers_per_trial: 2, placement: near}"},
            RESOURCES,
            "resources.placement is 'near'; it must be 'pack', 'spread', 'strict_pack' or 'strict_spread'",
        ),
        (
            {
                TRAIN: "train: {tokens: 4M, batch_size: 16, compile: 'on'}",
                RESOURCES: "resources: {workers_per_trial: 2, parallel: fsdp}",
            },
            TRAIN,
            "compile is 'on', which resources.parallel 'fsdp' cannot do",
        ),
        ({RESOURCES: "resources: {train: {memory: much}}"}, RESOURCES, "it must be an amount of memory, such as 4MB"),
        ({RESOURCES: "resources: {train: {resources: {a: 0}}}"}, RESOURCES, "resources.train.resources.a is 0"),
        (
            {RESOURCES: "resources: {train: {labels: {gpu: 'in(a,b)'}}}"},
            RESOURCES,
            "labels.gpu is 'in(a,b)'; it must be letters, digits",
        ),
        ({RESOURCES: "resources: {train: {accelerator: ''}}"}, RESOURCES, "resources.train.accelerator is ''"),
        ({RESOURCES: "resources: {train: {gpu: 1}}"}, RESOURCES, "train.gpu is not a known key"),
    ],
)
def test_what_cannot_be_is_refused_at_its_line(
    tmp_path: Path, example: str, lines: dict[int, str], at: int, expected: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, example, lines)
    found = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert any(one.startswith(f"study.yaml:{at}: ") and expected in one for one in found), found


def test_a_searched_batch_size_is_refused_where_it_is_searched(tmp_path: Path, example: str) -> None:
    lines = {TRAIN: "train: {tokens: 4M}", 10: "  batch_size: {choices: [16, 18]}"}
    with pytest.raises(SpecError, match=r"study.yaml:10: batch_size is 18; it must be a multiple .*\(4\)"):
        read(tmp_path, example, {**lines, RESOURCES: "resources: {workers_per_trial: 4}"})


def test_the_stages_reserve_what_the_file_says(tmp_path: Path, example: str) -> None:
    text = (
        "resources: {workers_per_trial: 2, parallel: fsdp, placement: strict_pack, placement_timeout: 10m, "
        "train: {gpus: 1, cpus: 4, memory: 16GB, accelerator: H100, labels: {zone: a}, resources: {fast_disk: 1}}, "
        "benchmark: {accelerator: L4, cpus: 3}}"
    )
    spec = read(tmp_path, example, {RESOURCES: text})
    assert train_placement(spec) == Placement(
        cpus=4,
        gpus=1,
        memory=16_000_000_000,
        accelerator="H100",
        labels={"zone": "a"},
        custom={"fast_disk": 1},
        workers=2,
        strategy="strict_pack",
        timeout=600,
    )
    assert benchmark_placement(spec) == Placement(cpus=3, gpus=1, accelerator="L4", timeout=600)
    assert StudySpec.from_plain(spec.to_plain()) == spec


def test_a_benchmark_runs_where_training_does_unless_it_asks_for_something(tmp_path: Path, example: str) -> None:
    assert benchmark_placement(read(tmp_path, example, {})) is None
    on_gpu = read(tmp_path, example, {RESOURCES: "resources: {train: {gpus: 0, cpus: 2}, benchmark: {gpus: 1}}"})
    assert benchmark_placement(on_gpu) == Placement(cpus=2, gpus=1)


def test_the_number_of_workers_identifies_nothing(tmp_path: Path, example: str) -> None:
    from orchestrator.configuration import resolve
    from orchestrator.study_identity import refuse_other_study

    one = read(tmp_path, example, {RESOURCES: "resources: {workers_per_trial: 1}"})
    four = read(tmp_path, example, {RESOURCES: "resources: {workers_per_trial: 4}"})
    point = {"num_loops": 1, "lr": 2e-3}
    assert resolve(one, point).fingerprint == resolve(four, point).fingerprint
    refuse_other_study(one.to_plain(), four.to_plain(), "folder")
