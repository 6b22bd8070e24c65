"""A small trial, and what tests do with its attempts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from workers.attempt_folder import AttemptFolder
from workers.config import DataConfig, ModelConfig, TrainConfig, variant_knobs
from workers.execution import execute
from workers.models import load_pretrained
from workers.protocol import MetricReport, ShouldStop, TrialOutcome, TrialRequest, never_stop

STEPS, BATCH = 24, 8
WALL_CLOCK = {"train/seconds", "train/tokens_per_second"}
MODEL = ModelConfig(
    vocab_size=4,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=16,
    **{**variant_knobs("plt"), "window": 4},
)


def make_trial(tmp_path: Path) -> TrialRequest:
    return TrialRequest(
        attempt_id="0-1",
        model=MODEL,
        data=DataConfig(corpus="phop", seq_len=16, eval_sequences=16),
        train=TrainConfig(
            tokens=STEPS * BATCH * 16, batch_size=BATCH, evaluations=2, lr=1e-2, precision="float32", compile="off"
        ),
        seed=7,
        data_folder=str(tmp_path / "data"),
        folder=str(tmp_path / "attempt-1"),
        evaluate_at=(5 * BATCH * 16 - 3, 13 * BATCH * 16),
        best_by=("val/loss", "minimize"),
        threads=1,
    )


class Clock:
    """Every look at it takes so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def run(
    request: TrialRequest, should_stop: ShouldStop = never_stop, clock: Callable[[], float] | None = None
) -> tuple[dict[int, MetricReport], TrialOutcome | None]:
    """Reports by step, and the outcome unless it was stopped."""
    items = list(execute(request, should_stop, clock=clock or Clock(1.0)))
    reports = {item.step: item for item in items if isinstance(item, MetricReport)}
    outcomes = [item for item in items if isinstance(item, TrialOutcome)]
    return reports, outcomes[0] if outcomes else None


def attempt(request: TrialRequest, number: int) -> TrialRequest:
    """The same trial's attempt of that number, which goes on from all earlier ones."""
    base = Path(request.folder).parent
    earlier = tuple(str(base / f"attempt-{each}") for each in range(number - 1, 0, -1))
    return replace(request, folder=str(base / f"attempt-{number}"), resume_from=earlier)


def exact(metrics: dict[str, float] | object) -> dict[str, float]:
    return {name: value for name, value in dict(metrics).items() if name not in WALL_CLOCK}  # type: ignore[call-overload]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_pretrained(folder).state_dict()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


Unbroken = tuple[dict[int, MetricReport], TrialOutcome, dict[str, torch.Tensor]]


def countdown(steps: int, before_step: Callable[[], None] = lambda: None) -> ShouldStop:
    """Stop before a step, after so many."""
    left = [steps]

    def should_stop() -> bool:
        before_step()
        left[0] -= 1
        return left[0] < 0

    return should_stop


def files(folder: str | Path) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def newest_state_of(folder: str) -> Path:
    return AttemptFolder(folder).states()[0]
