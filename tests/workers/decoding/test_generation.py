"""Greedy and sampled continuation."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from workers.config import ModelConfig
from workers.decoding import generate
from workers.models import LoopedTransformer


@pytest.fixture
def model(config_of: Callable[..., ModelConfig], make_model: Callable[..., LoopedTransformer]) -> LoopedTransformer:
    return make_model(config_of("plt", window=4))


def test_greedy_takes_the_likeliest_token_of_the_training_form(
    model: LoopedTransformer, random_ids: Callable[..., Tensor]
) -> None:
    ids = random_ids(2, 5)
    new = generate(model, ids, 9)
    whole = torch.cat((ids, new), 1)
    with torch.inference_mode():
        assert torch.equal(new, model(whole).logits[:, 4:-1].argmax(-1))


def test_sampling_follows_the_distribution(model: LoopedTransformer, random_ids: Callable[..., Tensor]) -> None:
    """The first token of many equal prompts, against the training form's probabilities: a chi-squared test."""
    count = 4000
    prompt = random_ids(1, 3)
    tokens = generate(model, prompt.expand(count, -1), 1, temperature=2.0, seed=1)[:, 0]
    with torch.inference_mode():
        expected = (model(prompt).logits[0, -1] / 2.0).softmax(-1) * count
    observed = torch.bincount(tokens, minlength=61)
    likely = expected >= 5
    statistic = ((observed[likely] - expected[likely]) ** 2 / expected[likely]).sum().item()
    assert likely.sum() > 10
    assert statistic < 2.0 * likely.sum()  # far beyond the 0.1 % point for more than 10 cells


def test_top_k_never_leaves_the_k_likeliest(model: LoopedTransformer, random_ids: Callable[..., Tensor]) -> None:
    prompt = random_ids(1, 3)
    tokens = generate(model, prompt.expand(500, -1), 1, temperature=5.0, top_k=3)[:, 0]
    with torch.inference_mode():
        likeliest = model(prompt).logits[0, -1].topk(3).indices
    assert set(tokens.tolist()) == set(likeliest.tolist())


def test_the_seed_decides(model: LoopedTransformer, random_ids: Callable[..., Tensor]) -> None:
    ids = random_ids(2, 4)
    first, again, other = (generate(model, ids, 12, temperature=3.0, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(generate(model, ids, 12, temperature=3.0, top_k=1), generate(model, ids, 12))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"max_new_tokens": 1, "temperature": -1.0}, r"temperature is -1.0"),
        ({"max_new_tokens": 1, "top_k": 0}, "top_k is 0"),
        ({"max_new_tokens": 61}, r"max_new_tokens is 61; after a prompt of 4 the model takes 60 more"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    model: LoopedTransformer, random_ids: Callable[..., Tensor], arguments: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generate(model, random_ids(1, 4), **arguments)
