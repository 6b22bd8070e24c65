"""The training form against golden values, Hugging Face's Llama, and properties that every variant must have."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from workers.config import VARIANTS, ModelConfig
from workers.models import LoopedTransformer, share_weights

Configure = Callable[..., ModelConfig]
Make = Callable[..., LoopedTransformer]
Ids = Callable[..., Tensor]


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def small(config: ModelConfig) -> ModelConfig:
    return replace(config, window=4) if config.local == "swa" else config


def test_every_loop_matches_the_golden_values(golden: Any) -> None:
    with torch.inference_mode():
        output = golden.model(golden.ids, every_loop=True)
    expected = golden.expected
    close = {"atol": 1e-4, "rtol": 0, "check_dtype": False}
    torch.testing.assert_close(output.logits, expected["logits"], **close)
    torch.testing.assert_close(torch.stack(output.loop_logits), expected["logits_per_loop"], **close)
    torch.testing.assert_close(torch.stack(output.loop_hidden), expected["hidden_per_loop"], **close)
    if "gates" in expected:
        torch.testing.assert_close(torch.stack(output.gates), expected["gates"], **close)
    else:
        assert output.gates == ()


def test_float64_matches_the_golden_values_closely(golden: Any) -> None:
    with torch.inference_mode():
        logits = golden.model.double()(golden.ids).logits
    torch.testing.assert_close(logits, golden.expected["logits"], atol=1e-9, rtol=0)


def test_every_loop_changes_nothing_but_what_is_returned(golden: Any) -> None:
    with torch.inference_mode():
        plain, full = golden.model(golden.ids), golden.model(golden.ids, every_loop=True)
    assert torch.equal(plain.logits, full.logits)
    assert (plain.loop_logits, plain.loop_hidden, plain.gates) == (None, None, None)


@pytest.mark.parametrize("tied", [False, True])
def test_one_loop_equals_hugging_face_llama(
    tied: bool, config_of: Configure, make_model: Make, random_ids: Ids
) -> None:
    config = config_of("vanilla", tie_word_embeddings=tied, rope_theta=5e5, rms_norm_eps=1e-3)
    model = make_model(config, dtype=torch.float32)
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    sizes = {name: getattr(config, name) for name in (*names, "num_key_value_heads", "rms_norm_eps")}
    llama = LlamaForCausalLM(
        LlamaConfig(**sizes, tie_word_embeddings=tied, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    )
    missing, unexpected = llama.load_state_dict(model.state_dict(), strict=False)
    assert (unexpected, set(missing) - {"lm_head.weight"}) == ([], set())
    ids = random_ids(2, 40)
    with torch.inference_mode():
        torch.testing.assert_close(model(ids).logits, llama(ids).logits, atol=2e-5, rtol=1e-5)


def test_a_token_changes_nothing_before_it(
    variant: str, config_of: Configure, make_model: Make, random_ids: Ids
) -> None:
    model = make_model(small(config_of(variant)))
    ids = random_ids(1, 16)
    with torch.inference_mode():
        before = model(ids).logits
        for slot in (0, 5, 15):
            changed = ids.clone()
            changed[0, slot] = (ids[0, slot] + 1) % 61
            after = model(changed).logits
            assert torch.equal(before[:, :slot], after[:, :slot])
            assert (before[:, slot:] != after[:, slot:]).any(-1).all()


def test_a_batch_equals_each_sequence_alone(
    variant: str, config_of: Configure, make_model: Make, random_ids: Ids
) -> None:
    model = make_model(small(config_of(variant)))
    ids = random_ids(3, 12)
    with torch.inference_mode():
        alone = torch.cat([model(row[None]).logits for row in ids])
        torch.testing.assert_close(model(ids).logits, alone, atol=1e-11, rtol=0)


@pytest.mark.parametrize("window", [1, 2, 6, 7, 8])
def test_the_window_holds_exactly_so_many_tokens(
    window: int, config_of: Configure, make_model: Make, random_ids: Ids
) -> None:
    """With the gate shut to the full context, a window is full own attention up to slot w-1 and no longer at slot w."""
    windowed = config_of("plt", window=window, gate_mode=0.0, gate_polarity="global")
    model = make_model(windowed)
    own = share_weights(model, config_of("loop+clp"))
    ids = random_ids(1, 16)
    with torch.inference_mode():
        difference = (model(ids).logits - own(ids).logits).abs().amax(-1)[0]
    assert difference[:window].max() < 1e-12
    assert difference[window:].min() > 1e-6


def test_polarity_flip_equals_negated_gate(config_of: Configure, make_model: Make, random_ids: Ids) -> None:
    for gate_input in ("query", "hidden"):
        local = make_model(config_of("plt", window=4, gate_input=gate_input, gate_polarity="local"))
        flipped = share_weights(local, replace(local.config, gate_polarity="global"))
        ids = random_ids(2, 12)
        with torch.inference_mode():
            logits = local(ids).logits
            assert (flipped(ids).logits - logits).abs().max() > 1e-3
            for name, parameter in flipped.named_parameters():
                if name.endswith(("plt_gate.weight", "plt_gate.bias")):
                    parameter.neg_()
            torch.testing.assert_close(flipped(ids).logits, logits, atol=1e-11, rtol=0)


@pytest.mark.parametrize("polarity", ["global", "local"])
@pytest.mark.parametrize(("share", "equal"), [(1.0, "loop+clp+share"), (0.0, "loop+clp")])
def test_a_gate_forced_to_one_side_leaves_that_side(
    polarity: str, share: float, equal: str, config_of: Configure, make_model: Make, random_ids: Ids
) -> None:
    """With a window as long as the sequence, the local side is plain attention to the loop's own keys."""
    model = make_model(config_of("plt", window=16, gate_polarity=polarity))
    other = share_weights(model, config_of(equal))
    gate = share if polarity == "global" else 1 - share
    fixed = share_weights(model, replace(model.config, gate_mode=gate))
    ids = random_ids(2, 16)
    with torch.inference_mode():
        for layer in model.model.layers:
            layer.self_attn.plt_gate.weight.zero_()
            layer.self_attn.plt_gate.bias.fill_(1e3 if gate == 1 else -1e3)
        for forced in (model, fixed):
            torch.testing.assert_close(forced(ids).logits, other(ids).logits, atol=1e-11, rtol=0)


def test_a_fixed_gate_has_no_parameters_and_mixes(config_of: Configure, make_model: Make, random_ids: Ids) -> None:
    learned = make_model(config_of("plt", window=4))
    fixed = share_weights(learned, replace(learned.config, gate_mode=0.25))
    assert not [name for name, _ in fixed.named_parameters() if "plt_gate" in name]
    for layer in learned.model.layers:
        with torch.no_grad():
            layer.self_attn.plt_gate.weight.zero_()
            layer.self_attn.plt_gate.bias.fill_(torch.logit(torch.tensor(0.25, dtype=torch.float64)))
    ids = random_ids(1, 12)
    with torch.inference_mode():
        torch.testing.assert_close(fixed(ids).logits, learned(ids).logits, atol=1e-12, rtol=0)


def test_gradients_flow_through_everything(
    variant: str, config_of: Configure, make_model: Make, random_ids: Ids
) -> None:
    """The loss has the slope that its central difference shows: nothing is detached, shared keys included."""
    model = make_model(small(config_of(variant)))
    ids = random_ids(2, 10)

    def loss() -> Tensor:
        return cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    loss().backward()
    generator, step = torch.Generator().manual_seed(5), 1e-5
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        direction = torch.empty_like(parameter).normal_(generator=generator)
        slope = (parameter.grad * direction).sum()
        with torch.no_grad():
            parameter.add_(direction, alpha=step)
            above = loss()
            parameter.sub_(direction, alpha=2 * step)
            difference = (above - loss()) / (2 * step)
            parameter.add_(direction, alpha=step)
        torch.testing.assert_close(difference, slope, atol=1e-7, rtol=1e-5, msg=name)


def test_bfloat16_keeps_tables_and_norms_wide(golden: Any) -> None:
    """Rounding of bfloat16 stays near its 3 digits, which tables or norms in bfloat16 would not allow."""
    with torch.inference_mode():
        logits = golden.model.bfloat16()(golden.ids).logits.double()
    error = (logits - golden.expected["logits"]).norm() / golden.expected["logits"].norm()
    assert error < 0.06
