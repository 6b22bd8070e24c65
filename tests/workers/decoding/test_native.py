"""Compiled steps against the training form in float64, with every set of instructions that this machine has."""

import ctypes
import mmap
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from workers.config import ModelConfig, variant_knobs
from workers.decoding import Decoder, DecoderWeights
from workers.decoding.memory import HUGE_PAGE, zeros
from workers.decoding.native.library import library
from workers.decoding.native.step import NativeStep
from workers.decoding.native.weights import packed
from workers.models import LoopedTransformer
from workers.models.rotary import rotary_tables

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="compiled steps need a C++ compiler")
FLAGS = ((), ("-DPLT_NO_TILES",), ("-DPLT_PLAIN",))
"""As this machine is, without AMX, and without any instruction for bfloat16."""
LENGTH = 21
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Largest relative error of the logits in Euclidean norm."""


@pytest.fixture(scope="module", params=FLAGS, ids=["native", "no tiles", "plain"])
def code(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(request.param)


def test_the_flags_choose_the_instructions() -> None:
    assert library(("-DPLT_PLAIN",)).plt_instructions() == 0
    assert library(("-DPLT_NO_TILES",)).plt_instructions() <= 1
    assert library().plt_instructions() >= library(("-DPLT_NO_TILES",)).plt_instructions()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 12, 13, 16, 17, 31, 33, 64, 65, 100])
def test_products_equal_float64(code: ctypes.CDLL, dtype: torch.dtype, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    for outputs, width in ((16, 32), (40, 96), (35, 48), (64, 1056)):
        weight = torch.randn(outputs, width, generator=generator).to(dtype)
        x = torch.randn(rows, width, generator=generator).to(dtype).float()
        product, blocks = torch.full((rows, outputs), torch.nan), packed(weight)
        work = zeros((max(code.plt_product_floats(2, rows, width), HUGE_PAGE),), torch.float32, torch.device("cpu"))
        code.plt_product(
            *(2, rows, width, outputs, dtype == torch.bfloat16),
            *(blocks.data_ptr(), x.data_ptr(), work.data_ptr(), product.data_ptr()),
        )
        exact = x.double() @ weight.double().T
        # inputs are exact in both types, so only sums in float32 are rounded
        torch.testing.assert_close(product.double(), exact, atol=1e-5 * width**0.5, rtol=0)


@st.composite
def configurations(draw: st.DrawFn) -> ModelConfig:
    head_dim, kv_heads = draw(st.sampled_from([16, 32, 48, 64])), draw(st.integers(1, 2))
    group = draw(st.integers(1, 3)) if head_dim < 48 else 1
    knobs: dict[str, Any] = {
        name: draw(st.booleans()) for name in ("clp", "reinject", "norm_per_loop", "tie_word_embeddings")
    }
    if draw(st.booleans()):
        knobs |= {
            "local": "swa",
            "window": draw(st.integers(1, LENGTH + 2)),
            "gate_input": draw(st.sampled_from(["query", "hidden"])),
            "gate_polarity": draw(st.sampled_from(["global", "local"])),
            "gate_mode": draw(st.sampled_from(["learned", 0.0, 0.3, 1.0])),
        }
    return ModelConfig(
        vocab_size=draw(st.integers(13, 40)),
        hidden_size=kv_heads * group * head_dim,
        intermediate_size=draw(st.integers(1, 70)),
        num_hidden_layers=draw(st.integers(1, 2)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        num_loops=draw(st.integers(1, 4)),
        kv_mode=draw(st.sampled_from(["per_loop", "share_first"])),
        hidden_scale=draw(st.sampled_from([1.0, 0.3])),
        max_position_embeddings=LENGTH,
        **knobs,
    )


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    config=configurations(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    batch_size=st.integers(1, 5),
    prompt=st.integers(0, LENGTH - 1),
    threads=st.integers(1, 3),
)
def test_compiled_steps_equal_the_training_form(
    code: ctypes.CDLL, config: ModelConfig, dtype: torch.dtype, batch_size: int, prompt: int, threads: int
) -> None:
    model, ids = (
        scattered(config, dtype),
        torch.arange(batch_size * LENGTH).view(batch_size, LENGTH) % config.vocab_size,
    )
    decoder = with_code(Decoder(model, batch_size, LENGTH), code)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        parts = [decoder.prefill(ids[:, :prompt])] if prompt else []
        parts += [steps(decoder, ids[:, prompt:])]
    finally:
        torch.set_num_threads(before)
    with torch.inference_mode():
        exact = model.double()(ids).logits
    error = (torch.cat(parts, 1).double() - exact).norm() / exact.norm()
    assert error < ROUNDING[dtype]


@pytest.mark.parametrize(("heads", "head_dim", "loops", "length"), [(5, 128, 4, 135), (4, 32, 3, 64), (2, 96, 2, 300)])
def test_long_contexts_and_many_queries(code: ctypes.CDLL, heads: int, head_dim: int, loops: int, length: int) -> None:
    """Places that fill no whole tile, more than 16 queries to a key head, wide heads: rounding as PyTorch's operators.

    In bfloat16 compiled steps are the more exact ones; in float32 both differ by sums in another order.
    """
    config = plt(heads=heads, head_dim=head_dim, num_layers=2, num_loops=loops, window=40, length=length)
    ids = torch.arange(2 * length).view(2, length) % 20
    for dtype in ROUNDING:
        model = scattered(config, dtype)
        decoders = [with_code(Decoder(model, 2, length), code), Decoder(model, 2, length, compiled=False)]
        assert [decoder.engine for decoder in decoders] == ["compiled", "torch"]
        for decoder in decoders:
            decoder.prefill(ids[:, :50], last_only=True)
        compiled, operators = (steps(decoder, ids[:, 50:]).double() for decoder in decoders)
        with torch.inference_mode():
            exact = model.double()(ids).logits[:, 50:]
        error = (compiled - exact).norm() / exact.norm()
        margin = 1.5 if dtype == torch.float32 else 1.05
        assert error < margin * (operators - exact).norm() / exact.norm()


def test_a_not_a_number_stays_one(code: ctypes.CDLL) -> None:
    for dtype in ROUNDING:
        model = scattered(plt(heads=2, head_dim=32, num_layers=1, num_loops=1, window=4, length=8), dtype)
        with torch.no_grad():
            model.get_parameter("model.layers.0.mlp.up_proj.weight")[3, 5] = torch.nan
        assert with_code(Decoder(model, 1, 8), code).step(torch.tensor([1])).isnan().all()


@pytest.mark.parametrize("bad", [-1, 20, 2**40])
def test_an_unknown_token_is_refused_and_changes_nothing(bad: int) -> None:
    model = scattered(plt(heads=2, head_dim=32, num_layers=1, num_loops=2, window=4, length=8), torch.float32)
    refusing, other = Decoder(model, 2, 8), Decoder(model, 2, 8)
    with pytest.raises(IndexError, match=r"token ids are \[3, -?\d+\]; the vocabulary has 0 to 19"):
        refusing.step(torch.tensor([3, bad]))
    assert refusing.length == 0
    assert torch.equal(refusing.step(torch.tensor([3, 4])), other.step(torch.tensor([3, 4])))


def test_logits_do_not_depend_on_the_default_type_and_device() -> None:
    model = scattered(plt(heads=2, head_dim=32, num_layers=1, num_loops=2, window=4, length=8), torch.float32)
    first, other = Decoder(model, 2, 8), Decoder(model, 2, 8)
    ids, before = torch.tensor([3, 4]), torch.get_default_dtype()
    expected = first.step(ids)
    try:
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"):
            found = other.step(ids)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(found, expected)


def test_a_model_of_several_types_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    model = scattered(plt(heads=2, head_dim=32, num_layers=1, num_loops=2, window=4, length=8), torch.float32)
    model.model.layers[0].mlp.bfloat16()
    assert Decoder(model, 1, 8).engine == "torch"
    assert "gate_proj.weight is torch.bfloat16 and the head torch.float32" in caplog.text


def test_a_forked_process_goes_on_with_one_thread() -> None:
    """In a process of its own: forking this one is not for a test."""
    model = "LoopedTransformer(ModelConfig(**sizes, num_attention_heads=2, num_key_value_heads=2))"
    script = f"""
import os, signal, torch
from workers.config import ModelConfig
from workers.decoding import Decoder, DecoderWeights
from workers.models import LoopedTransformer
torch.set_num_threads(2)
sizes = {{"vocab_size": 20, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}}
decoder = Decoder({model}, 1, 4)
assert decoder.engine == "compiled"
decoder.step(torch.tensor([3]))
child = os.fork()
if child == 0:
    signal.alarm(60)
    decoder.step(torch.tensor([3]))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_decoders_of_one_model_may_step_in_several_threads() -> None:
    model = scattered(plt(heads=4, head_dim=32, num_layers=2, num_loops=3, window=4, length=40), torch.bfloat16)
    weights = DecoderWeights(model, 3)
    ids = torch.arange(40).view(1, 40) % 20

    def take(_: int) -> Tensor:
        torch.set_num_threads(2)
        return steps(Decoder(model, 1, 40, weights=weights), ids)

    alone = take(0)
    with ThreadPoolExecutor(2) as pool:
        assert all(torch.equal(logits, alone) for logits in pool.map(take, range(4)))


def test_steps_take_no_more_memory_as_they_go_on() -> None:
    length = 10_100
    decoder = Decoder(
        scattered(plt(heads=2, head_dim=32, num_layers=2, num_loops=2, window=8, length=length), torch.float32),
        1,
        length,
    )
    token, caches = torch.tensor([1]), decoder.cache.places.numel() * decoder.cache.places.element_size()
    for _ in range(50):
        decoder.step(token)
    before = resident()
    for _ in range(10_000):
        decoder.step(token)
    assert resident() - before < caches + 2**20  # pages of the caches are taken when they are first written


def plt(*, heads: int, head_dim: int, num_layers: int, num_loops: int, window: int, length: int) -> ModelConfig:
    return ModelConfig(
        vocab_size=20,
        hidden_size=heads * head_dim,
        intermediate_size=72,
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        num_key_value_heads=1,
        max_position_embeddings=length,
        **(variant_knobs("plt") | {"num_loops": num_loops, "window": window}),
    )


def steps(decoder: Decoder, ids: Tensor) -> Tensor:
    return torch.stack([decoder.step(column) for column in ids.unbind(1)], 1)


def scattered(config: ModelConfig, dtype: torch.dtype) -> LoopedTransformer:
    """A model whose every tensor matters, norms and gates included."""
    generator, model = torch.Generator().manual_seed(1), LoopedTransformer(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(0, 0.1, generator=generator))
    return model.to(dtype)


def with_code(decoder: Decoder, code: ctypes.CDLL) -> Decoder:
    """The decoder with steps by `code`."""
    config, weights = decoder.config, decoder.weights.native
    assert weights is not None
    tables = rotary_tables(decoder.max_length, config.head_dim, config.rope_theta, torch.empty(0))
    decoder._native = NativeStep(weights, config, decoder.cache, decoder.carry, tables, code=code)
    return decoder


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
