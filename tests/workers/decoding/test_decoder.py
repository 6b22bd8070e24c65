"""Decoding against golden values and against the training form, however the sequence is cut."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from workers.config import VARIANTS, ModelConfig
from workers.config.counts import kv_bytes_per_sequence
from workers.decoding import Decoder, DecoderWeights
from workers.decoding.decoder import MAX_CHUNK
from workers.models import LoopedTransformer, share_weights

Configure = Callable[..., ModelConfig]
Make = Callable[..., LoopedTransformer]
Ids = Callable[..., Tensor]
CHUNKS = [(24,), (1, 23), (3, 1, 8, 5, 7), (2,) * 12, (10, 4, 10)]


def steps(decoder: Decoder, ids: Tensor) -> Tensor:
    return torch.stack([decoder.step(column) for column in ids.unbind(1)], 1)


def prefills(decoder: Decoder, ids: Tensor, chunks: tuple[int, ...]) -> Tensor:
    return torch.cat([decoder.prefill(part) for part in ids.split(chunks, 1)], 1)


@pytest.mark.parametrize("static_shapes", [False, True])
def test_golden_logits_token_by_token(golden: Any, static_shapes: bool) -> None:
    decoder = Decoder(golden.model, 2, 24, static_shapes=static_shapes)
    torch.testing.assert_close(
        steps(decoder, golden.ids), golden.expected["logits"], atol=1e-4, rtol=0, check_dtype=False
    )


@pytest.mark.parametrize("chunks", CHUNKS)
def test_golden_logits_in_chunks(golden: Any, chunks: tuple[int, ...]) -> None:
    decoder = Decoder(golden.model, 2, 24)
    expected = golden.expected["logits"]
    torch.testing.assert_close(prefills(decoder, golden.ids, chunks), expected, atol=1e-4, rtol=0, check_dtype=False)


def test_golden_logits_in_chunks_and_steps_mixed(golden: Any) -> None:
    decoder, ids = Decoder(golden.model, 2, 24), golden.ids
    parts = [
        decoder.prefill(ids[:, :5]),
        steps(decoder, ids[:, 5:12]),
        decoder.prefill(ids[:, 12:13]),
        decoder.prefill(ids[:, 13:20]),
        steps(decoder, ids[:, 20:]),
    ]
    expected = golden.expected["logits"]
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-4, rtol=0, check_dtype=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_golden_cache_bytes_at_every_length(golden: Any, dtype: str) -> None:
    expected = dict(
        zip(golden.expected["kv_lengths"].tolist(), golden.expected[f"kv_bytes_{dtype}"].tolist(), strict=True)
    )
    decoder = Decoder(golden.model.to(getattr(torch, dtype)), 2, max(expected))
    assert decoder.carry_bytes() == int(golden.expected[f"carry_bytes_{dtype}"])
    for length in sorted(length for length in expected if length <= 1024):
        decoder.prefill(torch.zeros(2, length - decoder.length, dtype=torch.int64), last_only=True)
        assert decoder.kv_bytes() == expected[length]
    assert decoder.allocated_bytes() == expected[max(expected)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("loops", [1, 2, 4])
@pytest.mark.parametrize("static_shapes", [False, True])
def test_steps_equal_the_training_form(
    variant: str, loops: int, static_shapes: bool, config_of: Configure, make_model: Make, random_ids: Ids
) -> None:
    config = config_of(variant, num_loops=loops)
    config = replace(config, window=3) if config.local == "swa" else config
    model, ids = make_model(config), random_ids(3, 14)
    decoder = Decoder(model, 3, 20, static_shapes=static_shapes)
    decoded = torch.cat((decoder.prefill(ids[:, :2]), steps(decoder, ids[:, 2:])), 1)
    torch.testing.assert_close(decoded, model(ids).logits.detach(), atol=1e-10, rtol=0)


@pytest.mark.parametrize("window", [1, 2, 6, 7, 8])
@pytest.mark.parametrize("static_shapes", [False, True])
def test_the_ring_holds_exactly_the_window(
    window: int, static_shapes: bool, config_of: Configure, make_model: Make, random_ids: Ids
) -> None:
    """With the gate shut to the full context, decoding equals full own attention up to slot w-1, and not at slot w."""
    windowed = config_of("plt", window=window, gate_mode=0.0, gate_polarity="global")
    model, ids = make_model(windowed), random_ids(1, 16)
    own = share_weights(model, config_of("loop+clp"))
    decoded = [steps(Decoder(part, 1, 16, static_shapes=static_shapes), ids) for part in (model, own)]
    difference = (decoded[0] - decoded[1]).abs().amax(-1)[0]
    assert difference[:window].max() < 1e-12
    assert difference[window:].min() > 1e-6


def test_a_window_beside_own_keys_needs_no_ring(config_of: Configure, make_model: Make, random_ids: Ids) -> None:
    config = config_of("plt", window=4, kv_mode="per_loop")
    model, ids = make_model(config), random_ids(2, 12)
    for static_shapes in (False, True):
        decoder = Decoder(model, 2, 12, static_shapes=static_shapes)
        decoded = torch.cat((prefills(decoder, ids[:, :7], (3, 4)), steps(decoder, ids[:, 7:])), 1)
        torch.testing.assert_close(decoded, model(ids).logits.detach(), atol=1e-10, rtol=0)
        assert decoder.kv_bytes() == kv_bytes_per_sequence(config, 12, 8)


def test_sequences_of_a_batch_do_not_touch_each_other(config_of: Configure, make_model: Make, random_ids: Ids) -> None:
    model, ids = make_model(config_of("plt", window=4, num_loops=3)), random_ids(3, 12)
    together = steps(Decoder(model, 3, 12), ids)
    alone = torch.cat([steps(Decoder(model, 1, 12), row[None]) for row in ids])
    torch.testing.assert_close(together, alone, atol=1e-11, rtol=0)


def test_reset_starts_over_in_the_same_memory(config_of: Configure, make_model: Make, random_ids: Ids) -> None:
    model, ids = make_model(config_of("plt", window=4)), random_ids(2, 12)
    decoder = Decoder(model, 2, 12)
    memory = decoder.carry.data_ptr()
    first = steps(decoder, ids)
    decoder.reset()
    assert (decoder.length, decoder.kv_bytes()) == (0, 0)
    assert torch.equal(steps(decoder, ids), first)
    assert decoder.carry.data_ptr() == memory


@pytest.mark.parametrize("kv_mode", ["share_first", "per_loop"])
@pytest.mark.parametrize("way", [{"compiled": True}, {"compiled": False}, {"static_shapes": True}])
def test_reset_forgets_what_was_no_number(
    config_of: Configure, make_model: Make, kv_mode: str, way: dict[str, bool]
) -> None:
    knobs = {"window": 4, "kv_mode": kv_mode, "tie_word_embeddings": False, "hidden_size": 128}
    model = make_model(config_of("plt", **knobs), dtype=torch.bfloat16)
    with torch.no_grad():
        model.get_parameter("model.embed_tokens.weight")[5] = torch.nan
    decoder, fresh = Decoder(model, 1, 12, **way), Decoder(model, 1, 12, **way)
    assert steps(decoder, torch.full((1, 6), 5)).isnan().all()
    decoder.reset()
    ids = torch.tensor([[1, 2, 3, 1]])
    assert torch.equal(steps(decoder, ids), steps(fresh, ids))


def test_weights_are_shared_and_a_snapshot(config_of: Configure, make_model: Make, random_ids: Ids) -> None:
    model, ids = make_model(config_of("plt", window=4), dtype=torch.float32), random_ids(1, 8)
    weights = DecoderWeights(model, rows=2)
    own, shared = steps(Decoder(model, 1, 8), ids), steps(Decoder(model, 1, 8, weights=weights), ids)
    torch.testing.assert_close(own, shared, atol=1e-5, rtol=0)
    twin = share_weights(model, config_of("vanilla"))
    torch.testing.assert_close(
        steps(Decoder(twin, 1, 8, weights=weights), ids), twin(ids).logits.detach(), atol=1e-4, rtol=0
    )


def test_bfloat16_decoding_is_the_training_form_up_to_rounding(golden: Any) -> None:
    model = golden.model.bfloat16()
    decoded = steps(Decoder(model, 2, 24), golden.ids)
    assert decoded.dtype == torch.bfloat16
    expected = golden.expected["logits"]
    assert (decoded.double() - expected).norm() / expected.norm() < 0.06


def test_a_long_prefill_is_cut(config_of: Configure, make_model: Make, random_ids: Ids) -> None:
    model = make_model(config_of("plt", window=4, num_hidden_layers=1), dtype=torch.float32)
    ids = random_ids(1, MAX_CHUNK + 5)
    with torch.inference_mode():
        expected = model(ids).logits
    decoder = Decoder(model, 1, MAX_CHUNK + 5)
    torch.testing.assert_close(decoder.prefill(ids), expected, atol=1e-4, rtol=0)
    decoder.reset()
    torch.testing.assert_close(decoder.prefill(ids, last_only=True), expected[:, -1:], atol=1e-4, rtol=0)


def test_prefill_of_the_last_logits_only(golden: Any) -> None:
    decoder = Decoder(golden.model, 2, 24)
    logits = decoder.prefill(golden.ids, last_only=True)
    torch.testing.assert_close(logits, golden.expected["logits"][:, -1:], atol=1e-4, rtol=0, check_dtype=False)


def test_what_does_not_fit_is_refused_and_changes_nothing(config_of: Configure, make_model: Make) -> None:
    model = make_model(config_of("plt", window=4))
    with pytest.raises(ValueError, match="max_length is 0"):
        Decoder(model, 1, 0)
    with pytest.raises(ValueError, match="batch_size is 0"):
        Decoder(model, 0, 8)
    decoder = Decoder(model, 2, 4)
    with pytest.raises(ValueError, match=r"shape \(1, 3\); this decoder takes \(2, T\)"):
        decoder.prefill(torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"shape \(2, 1\); this decoder takes \(2,\)"):
        decoder.step(torch.zeros(2, 1, dtype=torch.int64))
    decoder.prefill(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="2 more slots after 3 do not fit max_length 4"):
        decoder.prefill(torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="0 more slots"):
        decoder.prefill(torch.zeros(2, 0, dtype=torch.int64))
    decoder.step(torch.zeros(2, dtype=torch.int64))
    assert decoder.length == 4
