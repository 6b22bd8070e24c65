"""One Ray cluster for the tests of this folder, with more CPUs and GPUs than there are, and what they share."""

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "workers"))
import gang_probes
import probes

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Backend
from workers.config import BenchmarkConfig, DataConfig, ModelConfig, TrainConfig
from workers.protocol import BenchmarkRequest, TrialOutcome, TrialRequest

TINY = ModelConfig(
    vocab_size=4,
    hidden_size=4,
    intermediate_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
)
MakeRequest = Callable[[str], BenchmarkRequest]
MakeTrial = Callable[[str, Path], TrialRequest]
Drain = Callable[[Backend, set[str]], tuple[dict[str, list[int]], dict[str, TrialOutcome]]]


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[None]:
    """Eight CPUs and two GPUs, as far as Ray knows, on a node with a label and resources of its own."""
    import ray
    from ray import cloudpickle

    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cloudpickle.register_pickle_by_value(probes)
    cloudpickle.register_pickle_by_value(gang_probes)
    ray.init(
        address="local",
        num_cpus=8,
        num_gpus=2,
        resources={"fast_disk": 2, "accelerator_type:H100": 1},
        labels={"zone": "a"},
        include_dashboard=False,
        object_store_memory=100_000_000,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
    )
    yield
    ray.shutdown()


@pytest.fixture
def make_request() -> MakeRequest:
    """A request that a probe understands."""
    return lambda attempt_id: BenchmarkRequest(attempt_id=attempt_id, model=TINY, benchmark=BenchmarkConfig())


@pytest.fixture
def make_trial() -> MakeTrial:
    """The same with a folder of its own, for six steps."""

    def make(attempt_id: str, folder: Path) -> TrialRequest:
        train = TrainConfig(tokens=6 * 16 * 16)
        data = DataConfig(corpus="phop", seq_len=16)
        settings: dict[str, Any] = {"data_folder": str(folder / "data"), "folder": str(folder), "seed": 0}
        return TrialRequest(attempt_id=attempt_id, model=TINY, data=data, train=train, **settings)

    return make


@pytest.fixture
def drain() -> Drain:
    """Poll until every attempt has ended: reported steps and outcome of each."""

    def poll_all(backend: Backend, ids: set[str]) -> tuple[dict[str, list[int]], dict[str, TrialOutcome]]:
        steps: dict[str, list[int]] = {attempt_id: [] for attempt_id in ids}
        ended: dict[str, TrialOutcome] = {}
        while set(ended) != ids:
            for event in backend.poll(5.0):
                assert event.attempt_id not in ended
                if isinstance(event, AttemptReported):
                    steps[event.attempt_id].append(event.report.step)
                else:
                    assert isinstance(event, AttemptEnded)
                    ended[event.attempt_id] = event.outcome
        return steps, ended

    return poll_all
