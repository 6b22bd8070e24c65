"""The decode benchmark: what it computes from a given clock, what it counts, and what it refuses to measure."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, cycle
from typing import Any

import pytest
import torch
from torch import Tensor

from workers.config import BenchmarkConfig, ModelConfig
from workers.config.counts import carry_bytes_per_sequence, kv_bytes_per_sequence
from workers.decoding import Decoder
from workers.evaluation.decode_benchmark import measure
from workers.evaluation.decode_check import check_decoder
from workers.evaluation.decode_timing import WARM_UP_STEPS
from workers.evaluation.hardware import hardware, read_bandwidth
from workers.models import LoopedTransformer, share_weights

Configure = Callable[..., ModelConfig]
NAMES = {
    "decode/ms_per_token",
    "decode/ms_per_token_p95",
    "decode/latency_ratio",
    "decode/tokens_per_second",
    "decode/roofline_fraction",
    "prefill/ms",
    "kv/bytes_per_sequence",
    "kv/carry_bytes_per_sequence",
    "kv/ratio",
}


def clock_of(intervals: Iterator[float]) -> Callable[[], float]:
    """A clock by which every second reading comes so many seconds after the one before."""
    readings = chain.from_iterable((0.0, interval) for interval in intervals)
    return lambda: next(readings)


def test_metrics_from_a_given_clock(config_of: Configure) -> None:
    """Model steps take 20 ms, twin steps 10 ms, then 16 ms for a while: ratios are of pairs, not of medians."""
    steps = 5
    twin = [9.0] * WARM_UP_STEPS + [0.01, 0.016, 0.016, 0.01, 0.01]
    pairs = [(0.02, seconds) if step % 2 == 0 else (seconds, 0.02) for step, seconds in enumerate(twin)]
    intervals = chain([0.3, 0.2], *pairs)
    benchmark = BenchmarkConfig(batch_sizes=(2,), context=12, generate=steps, repeats=1, precision="float32")
    config = config_of("plt", window=4, num_loops=3)
    metrics, info = measure(config, benchmark, 0, clock=clock_of(intervals))
    assert metrics.keys() == NAMES
    assert metrics["prefill/ms"] == pytest.approx(300)
    assert metrics["decode/ms_per_token"] == pytest.approx(20)
    assert metrics["decode/ms_per_token_p95"] == pytest.approx(20)
    assert metrics["decode/latency_ratio"] == pytest.approx(2)
    assert metrics["decode/tokens_per_second"] == pytest.approx(100)
    weights = LoopedTransformer(config, device="meta").state_dict()
    matrices = sum(tensor.numel() for name, tensor in weights.items() if name.endswith(("_proj.weight", "head.weight")))
    state = kv_bytes_per_sequence(config, 12, 4) + carry_bytes_per_sequence(config, 4)
    floor = (4 * matrices + 2 * state) / info["read_bandwidth"]
    assert metrics["decode/roofline_fraction"] == pytest.approx(floor / 0.02)
    assert info["timed_steps"] == steps


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", ["loop", "loop+clp", "loop+clp+share", "plt", "iquest-loop"])
def test_memory_is_the_formula_s(variant: str, precision: str, config_of: Configure) -> None:
    config = config_of(variant)
    config = replace(config, window=4) if config.local == "swa" else config
    benchmark = BenchmarkConfig(batch_sizes=(1, 3), context=10, generate=2, repeats=1, precision=precision)
    metrics, info = measure(config, benchmark, 0)
    assert metrics.keys() == NAMES | {"b3/" + name for name in NAMES}
    size = 4 if precision == "float32" else 2
    twin = kv_bytes_per_sequence(replace(config, num_loops=1), 10, size)
    for prefix in ("", "b3/"):
        assert metrics[prefix + "kv/bytes_per_sequence"] == kv_bytes_per_sequence(config, 10, size)
        assert metrics[prefix + "kv/carry_bytes_per_sequence"] == carry_bytes_per_sequence(config, size)
        assert metrics[prefix + "kv/ratio"] == kv_bytes_per_sequence(config, 10, size) / twin
    assert info["check_error"].keys() == {"b1", "b3"}
    assert json.loads(json.dumps(info)) == info


def test_one_loop_is_its_own_twin(config_of: Configure) -> None:
    benchmark = BenchmarkConfig(context=8, generate=2, repeats=2, precision="float32")
    metrics, info = measure(config_of("vanilla"), benchmark, 0, clock=clock_of(cycle([0.5, 0.25])))
    assert (metrics["decode/latency_ratio"], metrics["kv/ratio"]) == (1.0, 1.0)
    assert info["twin"] == "the model itself"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "mistake",
    [{"window": 3}, {"window": 5}, {"gate_polarity": "global"}, {"kv_mode": "per_loop"}, {"norm_per_loop": True}],
)
def test_a_decoder_that_computes_something_else_is_not_measured(
    mistake: dict[str, Any],
    dtype: torch.dtype,
    config_of: Configure,
    make_model: Callable[..., LoopedTransformer],
    random_ids: Callable[..., Tensor],
) -> None:
    model = make_model(config_of("plt", window=4)).to(dtype)
    ids = random_ids(2, 20)
    assert check_decoder(model, Decoder(model, 2, 20), ids) < 2e-2
    wrong = share_weights(model, replace(model.config, **mistake))
    with pytest.raises(RuntimeError, match="decoding and training form disagree"):
        check_decoder(model, Decoder(wrong, 2, 20), ids)


def test_hardware_is_plain_and_names_the_device() -> None:
    facts = hardware()
    assert json.loads(json.dumps(facts)) == facts
    assert facts.keys() == {"kind", "device", "cores", "threads", "torch", "decoding"}
    assert facts["device"]
    assert facts["threads"] == torch.get_num_threads()


def test_bandwidth_is_measured_once_and_is_no_cache_s() -> None:
    bandwidth = read_bandwidth()
    assert 5e8 < bandwidth < 2e13
    assert read_bandwidth() == bandwidth
