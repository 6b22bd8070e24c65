"""A run reports what it should, learns, stops when it diverges, and goes on from a checkpoint bit for bit."""

from pathlib import Path

import pytest
import torch

from workers.config import DataConfig, ModelConfig, TrainConfig
from workers.data import Dataset, prepare
from workers.models import CheckpointError, LoopedTransformer, load_pretrained
from workers.protocol import MetricReport
from workers.training import DivergenceError, Plan, Trainer

STEPS, BATCH = 24, 8


def config(**changes: object) -> TrainConfig:
    settings = {"tokens": STEPS * BATCH * 16, "batch_size": BATCH, "evaluations": 4, "lr": 1e-2, **changes}
    return TrainConfig(**settings)  # type: ignore[arg-type]


def still() -> float:
    """A clock that stands, so that reports of equal runs are equal."""
    return 0.0


def trainer(model: LoopedTransformer, dataset: Dataset, seed: int = 3, **changes: object) -> Trainer:
    return Trainer(model, dataset, config(**changes), seed=seed, clock=still)


def weights(model: LoopedTransformer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_reports_are_evenly_spaced_and_the_last_one_is_at_the_end(model: LoopedTransformer, dataset: Dataset) -> None:
    reports = list(trainer(model, dataset).run())
    assert [report.step for report in reports if "val/loss" in report.metrics] == [6, 12, 18, 24]
    assert reports[-1].step == STEPS
    assert [report.step for report in reports] == sorted({report.step for report in reports})
    assert all(report.tokens == report.step * BATCH * 16 for report in reports)
    assert all({"train/loss", "train/lr"} <= report.metrics.keys() for report in reports)
    assert reports[-1].metrics["train/lr"] == pytest.approx(1e-3)
    assert {"tasks/phop/accuracy", "tasks/phop/majority"} <= reports[-1].metrics.keys()


@pytest.mark.parametrize("steps", [1, 3, 20, 130])
def test_no_run_reports_more_than_it_has_steps_or_than_a_person_can_read(
    model_config: ModelConfig, dataset: Dataset, steps: int
) -> None:
    tiny = LoopedTransformer(model_config, seed=0)
    reports = list(trainer(tiny, dataset, tokens=steps * 16, batch_size=1, evaluations=1).run())
    assert len(reports) == min(steps, 20)
    assert reports[-1].step == steps


def test_the_training_loss_is_the_mean_since_the_last_report(model_config: ModelConfig, dataset: Dataset) -> None:
    every_step = trainer(LoopedTransformer(model_config, seed=0), dataset, evaluations=STEPS)
    few = trainer(LoopedTransformer(model_config, seed=0), dataset, evaluations=1)
    losses = [report.metrics["train/loss"] for report in every_step.run()]
    assert len(losses) == STEPS
    previous = 0
    for report in few.run():
        expected = sum(losses[previous : report.step]) / (report.step - previous)
        assert report.metrics["train/loss"] == pytest.approx(expected, rel=1e-6)
        previous = report.step


def test_a_model_learns_one_hop(model: LoopedTransformer, dataset: Dataset) -> None:
    reports = list(trainer(model, dataset, tokens=400 * 32 * 16, batch_size=32).run())
    first, last = reports[0].metrics, reports[-1].metrics
    assert last["train/loss"] < 0.2 * first["train/loss"]
    assert last["tasks/phop/accuracy"] > 0.8 > 2 * last["tasks/phop/majority"]


def test_equal_runs_give_equal_reports(model_config: ModelConfig, dataset: Dataset) -> None:
    runs = [list(trainer(LoopedTransformer(model_config, seed=0), dataset).run()) for _ in range(2)]
    assert runs[0] == runs[1]
    other = list(trainer(LoopedTransformer(model_config, seed=0), dataset, seed=4).run())
    assert [report.metrics for report in other] != [report.metrics for report in runs[0]]


def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(
    model_config: ModelConfig, dataset: Dataset, tmp_path: Path
) -> None:
    whole = LoopedTransformer(model_config, seed=0)
    expected = list(trainer(whole, dataset).run())
    broken = trainer(LoopedTransformer(model_config, seed=0), dataset)
    before: list[MetricReport] = []
    for report in broken.run():
        before.append(report)
        if report.step >= 11:
            break
    broken.save(tmp_path / "checkpoint")
    resumed_model = LoopedTransformer(model_config, seed=99)
    resumed = trainer(resumed_model, dataset)
    resumed.restore(tmp_path / "checkpoint")
    assert before + list(resumed.run()) == expected
    assert_same(weights(resumed_model), weights(whole))


def test_a_checkpoint_restores_the_random_number_generators(
    model: LoopedTransformer, dataset: Dataset, tmp_path: Path
) -> None:
    run = trainer(model, dataset)
    torch.manual_seed(5)
    run.save(tmp_path / "checkpoint")
    expected = torch.rand(4)
    torch.manual_seed(6)
    run.restore(tmp_path / "checkpoint")
    assert torch.equal(torch.rand(4), expected)


def test_a_checkpoint_keeps_the_plan(model_config: ModelConfig, dataset: Dataset, tmp_path: Path) -> None:
    first = Trainer(
        LoopedTransformer(model_config, seed=0), dataset, config(), seed=3, plan=Plan("bfloat16"), clock=still
    )
    expected = list(first.run())
    fresh = Trainer(
        LoopedTransformer(model_config, seed=0), dataset, config(), seed=3, plan=Plan("bfloat16"), clock=still
    )
    fresh.save(tmp_path / "checkpoint")
    resumed = trainer(LoopedTransformer(model_config, seed=1), dataset)
    resumed.restore(tmp_path / "checkpoint")
    assert list(resumed.run()) == expected


def test_a_checkpoint_has_no_pickle_and_its_model_can_be_read_alone(
    model: LoopedTransformer, dataset: Dataset, tmp_path: Path
) -> None:
    run = trainer(model, dataset)
    next(run.run())
    run.save(tmp_path / "checkpoint")
    run.save(tmp_path / "checkpoint")  # replaces the first one
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json"}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert_same(weights(load_pretrained(tmp_path / "checkpoint" / "model")), weights(model))


def test_a_checkpoint_of_another_run_is_refused_in_one_line(
    model_config: ModelConfig, dataset: Dataset, tmp_path: Path
) -> None:
    trainer(LoopedTransformer(model_config, seed=0), dataset).save(tmp_path / "checkpoint")
    wide = ModelConfig.from_dict({**model_config.to_dict(), "intermediate_size": 48})
    longer = prepare(DataConfig(corpus="phop", seq_len=16, eval_sequences=32, hops=3), tmp_path)
    others = {
        "model.intermediate_size is 32 there and 48 here": trainer(LoopedTransformer(wide, seed=0), dataset),
        "seed is 3 there and 4 here": trainer(LoopedTransformer(model_config, seed=0), dataset, seed=4),
        "train.lr is 0.01 there and 0.02 here": trainer(LoopedTransformer(model_config, seed=0), dataset, lr=2e-2),
        "data.hops is 1 there and 3 here": trainer(LoopedTransformer(model_config, seed=0), longer),
    }
    for complaint, other in others.items():
        before = weights(other.model)
        with pytest.raises(CheckpointError, match=complaint) as caught:
            other.restore(tmp_path / "checkpoint")
        assert "\n" not in str(caught.value)
        assert other.steps_done == 0
        assert_same(weights(other.model), before)


def test_a_folder_that_is_no_checkpoint_is_refused(model: LoopedTransformer, dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"trainer\.json cannot be read"):
        trainer(model, dataset).restore(tmp_path)
    (tmp_path / "trainer.json").write_text('{"format": "other"}')
    with pytest.raises(CheckpointError, match="not of format"):
        trainer(model, dataset).restore(tmp_path)


def test_a_loss_that_is_not_finite_ends_the_run(model: LoopedTransformer, dataset: Dataset) -> None:
    with pytest.raises(DivergenceError, match=r"train/loss is nan at step .*; lower lr"):
        list(trainer(model, dataset, lr=1e30).run())


def test_waiting_before_steps_is_allowed_and_not_counted_as_training(
    model: LoopedTransformer, dataset: Dataset
) -> None:
    now = [0.0]

    def wait() -> None:
        now[0] += 1000.0

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    run = Trainer(model, dataset, config(), seed=3, before_step=wait, clock=clock)
    reports = list(run.run())
    assert run.training_seconds == STEPS * 0.5
    assert reports[-1].seconds > STEPS * 1000
    assert reports[-1].metrics["train/tokens_per_second"] == BATCH * 16 / 0.5
