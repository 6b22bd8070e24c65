"""What a point of the search space resolves to."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.configuration import LOOP_KNOBS, default_d_ff, resolve
from orchestrator.spec import StudySpec
from workers.config import VARIANTS, DataConfig, ModelConfig

SIZES = {"d_model": 64, "num_layers": 2, "num_heads": 4}
MakeSpec = Callable[..., StudySpec]


def spec_of(**changes: Any) -> StudySpec:
    plain: dict[str, Any] = {
        "name": "small",
        "model": {"variant": "plt", **SIZES},
        "data": {"seq_len": 128},
        "objectives": [{"metric": "val/loss", "direction": "minimize"}],
        "budget": {"configurations": 5},
    }
    return StudySpec.from_plain({**plain, **changes})


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_a_variant_is_its_preset(variant: str) -> None:
    model = resolve(spec_of(model={"variant": variant, **SIZES}), {}).model
    expected = ModelConfig(
        vocab_size=257,
        hidden_size=64,
        intermediate_size=168,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        **VARIANTS[variant],
    )
    assert model == expected.normalised()


def test_a_searched_value_wins_over_a_fixed_one_and_that_over_the_variant() -> None:
    spec = spec_of(model={"variant": "plt", **SIZES, "window": 32}, search={"window": {"choices": [4, 8]}})
    assert VARIANTS["plt"]["window"] == 64
    assert resolve(spec, {}).model.window == 32
    assert resolve(spec, {"window": 8}).model.window == 8


def test_the_variant_can_be_searched() -> None:
    spec = spec_of(model=SIZES, search={"variant": {"choices": list(VARIANTS)}})
    assert [resolve(spec, {"variant": name}).knobs["variant"] for name in VARIANTS] == list(VARIANTS)
    assert resolve(spec, {"variant": "loop"}).model.kv_mode == "per_loop"


def test_sizes_follow_from_the_data() -> None:
    phop = {"corpus": "phop", "alphabet": 6, "answer_delay": 1, "seq_len": 64}
    found = resolve(spec_of(data=phop), {})
    assert (found.model.vocab_size, found.model.max_position_embeddings) == (7, 64)
    assert found.data == DataConfig(**phop)  # type: ignore[arg-type]
    assert resolve(spec_of(data={"vocab": "bpe:1000"}), {}).model.vocab_size == 1000


@given(st.integers(1, 20_000))
def test_the_default_mlp_is_eight_thirds_wide(d_model: int) -> None:
    width = default_d_ff(d_model)
    assert width % 8 == 0
    assert width >= 8
    assert abs(width - 8 * d_model / 3) <= 4 or width == 8


LOOPED = {"num_loops": 2, "window": 8, "gate_mode": 0.5, "gate_polarity": "global", "hidden_scale": 1.0}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"num_loops": 1, "window": 8}, {"num_loops": 1, "window": 64, "clp": False, "hidden_scale": 0.5}),
        ({**LOOPED, "gate_mode": 0.25}, {**LOOPED, "gate_mode": 0.75, "gate_polarity": "local"}),
        ({**LOOPED, "gate_mode": 1.0}, {**LOOPED, "local": "none"}),
        ({**LOOPED, "reinject": False, "emb_scale": 0.5}, {**LOOPED, "reinject": False}),
        ({**LOOPED, "hops": 3}, {**LOOPED, "hops": 5, "alphabet": 9}),
    ],
)
def test_settings_that_cannot_matter_do_not_make_another_configuration(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    spec = spec_of()
    assert resolve(spec, one).fingerprint == resolve(spec, other).fingerprint


@pytest.mark.parametrize(
    "change",
    [{"num_loops": 3}, {"window": 9}, {"gate_mode": 0.25}, {"lr": 1e-3}, {"seq_len": 64}, {"d_ff": 256}, {"tokens": 5}],
)
def test_settings_that_matter_make_another_configuration(change: dict[str, Any]) -> None:
    spec = spec_of()
    assert resolve(spec, LOOPED).fingerprint != resolve(spec, {**LOOPED, **change}).fingerprint


BENCHMARK = {"model": {"d_model": 512, "num_layers": 8, "num_heads": 8}, "context": 300, "generate": 20}


def test_the_benchmark_has_its_sizes_and_the_points_loop_knobs() -> None:
    found = resolve(spec_of(benchmark=BENCHMARK), LOOPED)
    deployed = found.benchmark_model
    assert deployed is not None
    assert (deployed.hidden_size, deployed.num_hidden_layers, deployed.num_attention_heads) == (512, 8, 8)
    assert deployed.intermediate_size == default_d_ff(512)
    assert (deployed.max_position_embeddings, deployed.vocab_size) == (320, 257)
    assert {name: getattr(deployed, name) for name in LOOP_KNOBS} == {
        name: getattr(found.model, name) for name in LOOP_KNOBS
    }
    wider = resolve(spec_of(benchmark={"model": {"vocab_size": 32_000, "d_ff": 96}}), {}).benchmark_model
    assert wider is not None
    assert (wider.vocab_size, wider.intermediate_size, wider.hidden_size) == (32_000, 96, 64)


def test_without_a_benchmark_section_nothing_is_deployed() -> None:
    found = resolve(spec_of(), {})
    assert (found.benchmark_model, found.benchmark, found.architecture) == (None, None, None)
    assert set(found.metrics_beforehand()) == {"model/parameters"}


def test_one_architecture_serves_what_differs_in_training_only() -> None:
    spec = spec_of(benchmark=BENCHMARK)
    one = resolve(spec, {"num_loops": 2})
    same = resolve(spec, {"num_loops": 2, "lr": 1e-4, "seq_len": 96, "embedding_init_std": 0.5, "gate_bias_init": 2.0})
    assert one.architecture == same.architecture
    assert one.fingerprint != same.fingerprint
    others: list[dict[str, Any]] = [
        {"num_loops": 3},
        {"num_loops": 2, "window": 8},
        {"num_loops": 2, "vocab": "bpe:1000"},
    ]
    assert one.architecture not in [resolve(spec, point).architecture for point in others]
    assert one.architecture != resolve(spec_of(benchmark={**BENCHMARK, "context": 301}), {"num_loops": 2}).architecture


@pytest.mark.parametrize(("loops", "window"), [(1, 8), (2, 8), (3, 16), (2, 128)])
def test_kv_bytes_are_counted_entry_by_entry(loops: int, window: int) -> None:
    """Loop 1 keeps every slot, each later loop the last `window`; keys and values of every layer and head, 2 bytes."""
    spec = spec_of(benchmark={"context": 100, "generate": 20})
    kept = [slot for loop in range(loops) for slot in range(100) if loop == 0 or slot >= 100 - window]
    entries = sum(2 for _ in kept for _layer in range(2) for _head in range(4) for _element in range(16))
    metrics = resolve(spec, {"num_loops": loops, "window": window}).metrics_beforehand()
    assert metrics["kv/bytes_per_sequence"] == 2 * entries
    assert metrics["kv/ratio"] == pytest.approx(len(kept) / 100)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"window": 129}, "window is 129; it must be at most seq_len (128)"),
        ({"num_heads": 3}, r"d_model is 64; it must be a multiple of num_heads \(3\)"),
        ({"num_kv_heads": 3}, r"num_kv_heads is 3; it must be a divisor of num_heads \(4\)"),
        ({"variant": "loop", "local": "swa"}, "window is None; it must be 1 or more tokens when local is swa"),
        ({"batch_size": 10, "micro_batch_size": 3}, "micro_batch_size is 3; it must be a divisor of batch_size"),
    ],
)
def test_what_no_model_can_be_is_said_in_the_files_words(point: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(128)", r"\(128\)")):
        resolve(spec_of(), point)


def test_a_window_that_cannot_matter_may_be_long() -> None:
    assert resolve(spec_of(), {"num_loops": 1, "window": 4096}).model.window is None


def test_knobs_are_flat_and_complete() -> None:
    knobs = resolve(spec_of(), {**LOOPED, "lr": 0.5}).knobs
    assert knobs["lr"] == 0.5
    assert (knobs["d_model"], knobs["d_ff"], knobs["window"], knobs["seq_len"], knobs["variant"]) == (
        64,
        168,
        8,
        128,
        "plt",
    )
    assert resolve(spec_of(), {"num_loops": 1}).knobs["window"] is None
