"""Exported folders in Hugging Face transformers, with the code that lies in them, against our own training form."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, DynamicCache

from workers.config import VARIANTS
from workers.interop.layout import Layout
from workers.interop.reading import load_model

Make = Callable[..., Any]
Ids = Callable[..., Tensor]

LOOPED = {
    "plt": {"num_loops": 3},
    "loopcoder-v2": {},
    "iquest-loop": {"num_loops": 3},
    "loop": {},
    "loop+clp+share": {"tie_word_embeddings": True},
}
"""CLP and none, shared and own keys and values, windows and none, both gates, both polarities, tied and not."""
CLOSE = {"atol": 1e-4, "rtol": 0, "check_dtype": False}


def load(folder: Path, **options: Any) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **options).eval()


@pytest.fixture(scope="module", params=LOOPED)
def looped(request: pytest.FixtureRequest, made: Make) -> tuple[Any, Any]:
    """A looped model and the same in transformers."""
    ours = made(request.param, **LOOPED[request.param])
    return ours, load(ours.folder, dtype=torch.float32)


def recomputed(ours: Any, ids: Tensor, steps: int) -> Tensor:
    """Greedy continuation of `ids` (B, T), every token from the whole prefix; (B, T + steps)."""
    for _ in range(steps):
        ids = torch.cat((ids, ours.logits(ids)[:, -1:].argmax(-1)), 1)
    return ids


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_ours(variant: str, tied: bool, made: Make, random_ids: Ids) -> None:
    """Prefill, and prefill of 12 slots with single steps past every window after it."""
    ours = made(variant, tie_word_embeddings=tied)
    theirs, ids = load(ours.folder, dtype=torch.float32), random_ids(2, 40)
    with torch.inference_mode():
        torch.testing.assert_close(theirs(ids).logits, ours.logits(ids), **CLOSE)
        output = theirs(ids[:, :12])
        parts = [output.logits]
        for slot in range(12, 40):
            output = theirs(ids[:, slot : slot + 1], past_key_values=output.past_key_values)
            parts.append(output.logits)
    torch.testing.assert_close(torch.cat(parts, 1), ours.logits(ids), **CLOSE)


@pytest.mark.parametrize(
    ("variant", "knobs"),
    [
        ("plt", {"gate_mode": 0.3}),
        ("plt", {"kv_mode": "per_loop", "num_loops": 3}),
        ("iquest-loop", {"clp": True, "gate_polarity": "local"}),
        ("iquest-loop", {"hidden_scale": 0.5, "gate_input": "hidden", "window": 1}),
        ("loopcoder-v2", {"num_loops": 4, "num_hidden_layers": 1, "window": 100}),
    ],
)
def test_settings_that_no_published_model_has(variant: str, knobs: dict, made: Make, random_ids: Ids) -> None:
    ours, ids = made(variant, **knobs), random_ids(1, 40)
    theirs = load(ours.folder, dtype=torch.float32)
    with torch.inference_mode():
        torch.testing.assert_close(theirs(ids).logits, ours.logits(ids), **CLOSE)


def test_a_loop_model_can_be_written_in_either_looped_layout(made: Make, random_ids: Ids) -> None:
    ours, ids = made("iquest-loop", layout=Layout.PLT), random_ids(1, 30)
    theirs = load(ours.folder, dtype=torch.float32)
    assert type(theirs).__name__ == "LoopVariantForCausalLM"
    with torch.inference_mode():
        torch.testing.assert_close(theirs(ids).logits, ours.logits(ids), **CLOSE)


def test_greedy_generation_is_recomputation(looped: tuple, random_ids: Ids) -> None:
    ours, theirs = looped
    ids = random_ids(2, 7)
    generated = theirs.generate(ids, max_new_tokens=20, do_sample=False)
    assert generated.tolist() == recomputed(ours, ids, 20).tolist()


def test_beams_are_recomputation(looped: tuple, random_ids: Ids) -> None:
    """Caches that are reordered give what whole prefixes give, and the scores are our own log probabilities."""
    ours, theirs = looped
    ids = random_ids(2, 6)
    options = {"max_new_tokens": 12, "num_beams": 3, "do_sample": False, "length_penalty": 0.0}
    cached = theirs.generate(ids, **options, output_scores=True, return_dict_in_generate=True)
    assert cached.sequences.tolist() == theirs.generate(ids, **options, use_cache=False).tolist()
    log_probabilities = ours.logits(cached.sequences)[:, 5:-1].log_softmax(-1)
    score = log_probabilities.gather(-1, cached.sequences[:, 6:, None]).sum((1, 2))
    torch.testing.assert_close(cached.sequences_scores, score, atol=1e-3, rtol=0, check_dtype=False)
    greedy = theirs.generate(ids, max_new_tokens=12, do_sample=False)
    assert greedy.tolist() != cached.sequences.tolist()


def test_sampled_sequences_of_one_prompt_have_caches_of_their_own(looped: tuple, random_ids: Ids) -> None:
    _, theirs = looped
    options = {"max_new_tokens": 8, "do_sample": True, "num_return_sequences": 3}
    drawn = []
    for use_cache in (True, False):
        torch.manual_seed(5)
        drawn.append(theirs.generate(random_ids(1, 6), **options, use_cache=use_cache).tolist())
    assert drawn[0] == drawn[1]
    assert len({tuple(row) for row in drawn[0]}) > 1


def test_a_left_padded_batch_is_its_sequences_alone(looped: tuple, random_ids: Ids) -> None:
    ours, theirs = looped
    lengths, longest = (3, 9, 14), 14
    prompts = [random_ids(1, length, seed=length) for length in lengths]
    ids = torch.cat([torch.nn.functional.pad(each, (longest - each.shape[1], 0)) for each in prompts])
    mask = torch.stack([torch.arange(longest) >= longest - length for length in lengths]).long()
    with torch.inference_mode():
        logits = theirs(ids, attention_mask=mask).logits
    for row, prompt in enumerate(prompts):
        torch.testing.assert_close(logits[row, -prompt.shape[1] :], ours.logits(prompt)[0], **CLOSE)
    generated = theirs.generate(ids, attention_mask=mask, max_new_tokens=15, do_sample=False)
    for row, prompt in enumerate(prompts):
        assert generated[row, longest - prompt.shape[1] :].tolist() == recomputed(ours, prompt, 15)[0].tolist()


def test_a_returned_cache_can_be_continued(looped: tuple, random_ids: Ids) -> None:
    """As in a chat: generate, append the user's next tokens, go on from the cache, padding and all."""
    ours, theirs = looped
    first = theirs.generate(random_ids(2, 6), max_new_tokens=9, do_sample=False, return_dict_in_generate=True)
    ids = torch.cat((first.sequences, random_ids(2, 4, seed=8)), 1)
    again = theirs.generate(ids, past_key_values=first.past_key_values, max_new_tokens=9, do_sample=False)
    assert again.tolist() == recomputed(ours, ids, 9).tolist()


def test_a_cache_that_was_handed_in_is_the_one_that_is_filled(looped: tuple, random_ids: Ids) -> None:
    ours, theirs = looped
    ids, cache = random_ids(1, 30), DynamicCache()
    with torch.inference_mode():
        for start in range(0, 30, 10):
            logits = theirs(ids[:, start : start + 10], past_key_values=cache).logits
    torch.testing.assert_close(logits, ours.logits(ids)[:, 20:], **CLOSE)
    assert cache.get_seq_length() == 30


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_prefill_in_chunks(chunk: int, looped: tuple, random_ids: Ids) -> None:
    ours, theirs = looped
    ids, slots = random_ids(2, 21), []
    counting = theirs.lm_head.register_forward_hook(lambda _module, inputs, _output: slots.append(inputs[0].shape[1]))
    generated = theirs.generate(ids, max_new_tokens=6, do_sample=False, prefill_chunk_size=chunk)
    counting.remove()
    assert len(slots) >= -(-21 // chunk) + 5  # 4.57 cuts off the last token, too
    assert generated.tolist() == recomputed(ours, ids, 6).tolist()


def test_saved_by_transformers_and_loaded_again(looped: tuple, tmp_path: Path, random_ids: Ids) -> None:
    """By transformers, and by us."""
    ours, theirs = looped
    theirs.save_pretrained(tmp_path / "saved")
    ids = random_ids(1, 20)
    with torch.inference_mode():
        expected = theirs(ids).logits
        assert torch.equal(load(tmp_path / "saved", dtype=torch.float32)(ids).logits, expected)
        torch.testing.assert_close(load_model(tmp_path / "saved").double()(ids).logits, ours.logits(ids))


def test_it_can_be_trained(looped: tuple, random_ids: Ids) -> None:
    ours, theirs = looped
    ids = random_ids(2, 12)
    loss = theirs.train()(ids, labels=ids).loss
    loss.backward()
    expected = cross_entropy(ours.logits(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=0, check_dtype=False)
    assert all(parameter.grad is not None for parameter in theirs.parameters())
    theirs.zero_grad()
    theirs.eval()


def test_half_precision(made: Make, random_ids: Ids) -> None:
    ours, ids = made("plt", dtype=torch.bfloat16), random_ids(1, 24)
    theirs = load(ours.folder, dtype="auto")
    assert theirs.dtype == torch.bfloat16
    with torch.inference_mode():
        full = load(ours.folder, dtype=torch.float32)(ids).logits
        torch.testing.assert_close(full, ours.logits(ids), **CLOSE)
        assert (theirs(ids).logits - full).abs().max() < 0.5


def test_what_would_go_wrong_silently_is_refused(looped: tuple, random_ids: Ids) -> None:
    _, theirs = looped
    ids = random_ids(1, 8)
    filled = DynamicCache()
    filled.update(torch.zeros(1, 1, 3, 32), torch.zeros(1, 1, 3, 32), 0)
    with pytest.raises(ValueError, match="a DynamicCache with 3 slots; this model goes on from a cache"):
        theirs(ids, past_key_values=filled)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(1, 5\).*need \(1, 8\)"):
        theirs(ids, attention_mask=torch.ones(1, 5))
    with pytest.raises(ValueError, match="attention_mask must be"):
        theirs(ids, attention_mask=torch.ones(1, 1, 8, 8))
    with pytest.raises(ValueError, match="output_hidden_states is not supported"):
        theirs(ids, output_hidden_states=True)
    with pytest.raises(ValueError, match="input_ids is missing"):
        theirs(inputs_embeds=torch.zeros(1, 8, 64))
    with pytest.raises(NotImplementedError, match="assisted decoding is not supported"):
        theirs(ids).past_key_values.crop(3)


@pytest.mark.parametrize("change", ["missing", "unexpected", "shape"])
def test_a_tensor_that_does_not_fit_is_an_error(change: str, made: Make, tmp_path: Path) -> None:
    shutil.copytree(made("plt").folder, tmp_path / "folder")
    path = tmp_path / "folder" / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.1.self_attn.plt_gate.bias"
    changed = {"missing": {}, "unexpected": {name: tensors[name], f"{name}2": tensors[name].clone()}}
    rest = {key: tensor for key, tensor in tensors.items() if key != name}
    save_file(rest | changed.get(change, {name: torch.zeros(7)}), path, metadata={"format": "pt"})
    with pytest.raises((ValueError, RuntimeError), match=r"plt_gate.bias"):
        load(tmp_path / "folder")
