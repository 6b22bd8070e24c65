"""A step is the mean loss's gradient, clipped, and AdamW's equations; micro-batches change nothing but memory."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from workers.config import ModelConfig, TrainConfig
from workers.data import IGNORED, Batch, Dataset
from workers.models import LoopedTransformer
from workers.training import Plan
from workers.training.stepper import Stepper


def gradients(model: LoopedTransformer) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def reference_gradients(model: LoopedTransformer, batch: Batch) -> dict[str, torch.Tensor]:
    """From the definition: the mean over all labelled slots of the batch at once."""
    model = copy.deepcopy(model)
    logits = model(torch.from_numpy(batch.inputs)).logits
    cross_entropy(logits.transpose(1, 2), torch.from_numpy(batch.targets), ignore_index=IGNORED).backward()  # type: ignore[no-untyped-call]
    return gradients(model)


@pytest.mark.parametrize("micro_batch_size", [None, 1, 2, 4])
def test_micro_batches_give_the_gradients_of_the_whole_batch(
    model: LoopedTransformer, dataset: Dataset, micro_batch_size: int | None
) -> None:
    batch = dataset.train_batch(0, seed=0, batch_size=8)
    batch.targets[:3, 4:] = IGNORED  # micro-batches with unequal numbers of labels
    expected = reference_gradients(model, batch)
    Stepper(model, TrainConfig(batch_size=8, micro_batch_size=micro_batch_size), Plan()).accumulate_gradients(batch)
    found = gradients(model)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-7)


def test_the_loss_is_the_mean_over_labelled_slots(model: LoopedTransformer, dataset: Dataset) -> None:
    batch = dataset.train_batch(0, seed=0, batch_size=8)
    with torch.no_grad():
        logits = model(torch.from_numpy(batch.inputs)).logits.double().numpy()
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    rows, slots = np.nonzero(batch.targets != IGNORED)
    expected = -np.log(shares[rows, slots, batch.targets[rows, slots]]).mean()
    loss = Stepper(model, TrainConfig(batch_size=8), Plan()).accumulate_gradients(batch)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_a_batch_without_labels_changes_no_gradient(model: LoopedTransformer, dataset: Dataset) -> None:
    batch = dataset.train_batch(0, seed=0, batch_size=8)
    loss = Stepper(model, TrainConfig(batch_size=8), Plan()).accumulate_gradients(
        Batch(batch.inputs, np.full_like(batch.targets, IGNORED))
    )
    assert loss.item() == 0.0
    assert all(gradient.abs().max() == 0 for gradient in gradients(model).values())


def test_steps_follow_the_equations_of_adamw(model: LoopedTransformer, dataset: Dataset) -> None:
    """Algorithm 2 of arXiv 1711.05101, with clipping by the global norm and decay on weight matrices alone."""
    config = TrainConfig(batch_size=8, weight_decay=0.5, beta1=0.8, beta2=0.9, grad_clip=0.05)
    twin = copy.deepcopy(model).double()
    first = {name: torch.zeros_like(parameter) for name, parameter in twin.named_parameters()}
    second = {name: torch.zeros_like(parameter) for name, parameter in twin.named_parameters()}
    stepper = Stepper(model, config, Plan())
    for step, lr in enumerate([1e-2, 2e-2, 5e-3]):
        batch = dataset.train_batch(step, seed=0, batch_size=8)
        stepper.step(batch, lr)
        found = reference_gradients(twin, batch)
        norm = torch.stack([gradient.norm() for gradient in found.values()]).norm()
        assert norm > config.grad_clip
        with torch.no_grad():
            for name, parameter in twin.named_parameters():
                gradient = found[name] * config.grad_clip / norm
                first[name] = 0.8 * first[name] + 0.2 * gradient
                second[name] = 0.9 * second[name] + 0.1 * gradient**2
                step_size = first[name] / (1 - 0.8 ** (step + 1))
                scale = (second[name] / (1 - 0.9 ** (step + 1))).sqrt() + 1e-8
                if parameter.dim() == 2 and not name.endswith("embed_tokens.weight"):
                    parameter.mul_(1 - lr * 0.5)
                parameter.sub_(lr * step_size / scale)
    for (name, found_value), (_, expected) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        torch.testing.assert_close(found_value.double(), expected, rtol=1e-3, atol=1e-4, msg=name)


def test_bfloat16_computes_in_bfloat16_and_keeps_float32_parameters(model: LoopedTransformer, dataset: Dataset) -> None:
    batch = dataset.train_batch(0, seed=0, batch_size=8)
    exact = Stepper(copy.deepcopy(model), TrainConfig(batch_size=8), Plan()).accumulate_gradients(batch).item()
    rounded = Stepper(model, TrainConfig(batch_size=8), Plan("bfloat16")).accumulate_gradients(batch).item()
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=2e-2)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert all(gradient.dtype == torch.float32 for gradient in gradients(model).values())


@pytest.mark.slow
def test_compiled_steps_equal_eager_ones(plain_config: ModelConfig, dataset: Dataset) -> None:
    model, twin = LoopedTransformer(plain_config, seed=0), LoopedTransformer(plain_config, seed=0)
    config = TrainConfig(batch_size=8)
    eager, compiled = Stepper(model, config, Plan()), Stepper(twin, config, Plan(compile=True))
    for step in range(3):
        batch = dataset.train_batch(step, seed=0, batch_size=8)
        assert compiled.step(batch, 1e-3).item() == pytest.approx(eager.step(batch, 1e-3).item(), rel=1e-5)
