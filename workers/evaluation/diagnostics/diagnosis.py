"""All loop diagnostics of one model on a fixed probe set, after LoopCoder-v2 (arXiv 2606.18023), in one pass.

With h(0) = E, f one more loop (its input from h, the layers, the norm where there is one, loop 1's keys and values) and
A(r), p(r) the attention and the prediction of loop r; means over slots, sequences, layers and heads:

    step_size          || h(r) - h(r-1) ||
    update_cosine      cos(h(r) - h(r-1), h(r-1) - h(r-2)), r >= 2; negative: loops undo each other
    effective_rank     of a sequence's S x d states over their root mean squares: how many directions are in use
    fixed_point_gap    || h(r) - f(h(r)) ||: what one more loop would change; loop r+1's step wherever that loop exists
    offset             || h(r-1)_t - h(r-1)_{t-1} ||, r >= 2 and with CLP: what the shift swaps in
    offset_over_step   offset / step_size of the loop
    attention_entropy  entropy of A(r), nats
    attention_kl       KL(A(r) || A(r-1)), r >= 2, nats
    head_rank          effective rank of the H x dh head outputs at a slot: H when all differ, 1 when all agree
    head_cosine        mean cosine between the outputs of two heads; with two heads or more
    global_share       what the full context counts beside the window, r >= 2 with a gated window
    lens_loss          -log p(r) of the true token, nats
    true_rank          rank of the true token in p(r), 1 is first
    lens_entropy       entropy of p(r), nats
    lens_kl            KL(p(r) || p(r-1)), r >= 2, nats
    peak_share         share of labelled slots whose largest lens_kl falls in loop r, r >= 2; in a tie, the earlier loop

The probe set is drawn once from the evaluation set by a fixed seed, so that all trials of a study share it. The model
computes in its parameters' own type; what is summed up is float64. A value that is not finite is left out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workers.data import EvaluationSet
from workers.evaluation.diagnostics import lens, routing, states
from workers.evaluation.diagnostics.means import Means
from workers.evaluation.diagnostics.routing import Routing
from workers.models import LoopedTransformer
from workers.protocol import LoopValue

PROBE_SEED = 0
"""Draws the probe set."""
TIE = 1e-6
"""Changes of prediction that differ by at most so many nats are equal: first slots of shifted loops do not change."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found."""

    metrics: dict[str, float]
    """`loops/<r>/<name>`: means over layers, heads and the probe set."""
    values: tuple[LoopValue, ...]
    """The same numbers, those of single layers and heads, and the loss of every item by loop."""
    sequences: int
    """Size of the probe set."""


def diagnose(model: LoopedTransformer, data: EvaluationSet, *, sequences: int, batch_size: int) -> Diagnosis:
    """Diagnose `model` on so many held-out sequences (at most all), `batch_size` at a time."""
    probe = probe_rows(len(data.inputs), sequences)
    means, device = Means(), next(model.parameters()).device
    with torch.inference_mode():
        for start in range(0, len(probe), batch_size):
            items = probe[start : start + batch_size]
            inputs = torch.from_numpy(data.inputs[items]).to(device)
            targets = torch.from_numpy(data.targets[items]).to(device)
            _Batch(model, means, items).measure(inputs, targets)
    values = tuple(value for value in _with_ratios(list(means.values())) if math.isfinite(value.value))
    whole = [value for value in values if (value.layer, value.head, value.item) == (None, None, None)]
    metrics = {f"loops/{value.loop}/{value.name}": value.value for value in whole}
    return Diagnosis(metrics=metrics, values=values, sequences=len(probe))


def probe_rows(available: int, wanted: int) -> list[int]:
    """Which sequences of the evaluation set are looked at, in its order."""
    return sorted(np.random.default_rng(PROBE_SEED).permutation(available)[:wanted].tolist())


def _with_ratios(values: list[LoopValue]) -> Iterator[LoopValue]:
    """The values, and the offset of each loop over its step."""
    yield from values
    steps = {value.loop: value.value for value in values if value.name == "step_size"}
    for value in values:
        if value.name == "offset" and steps[value.loop] > 0:
            yield value._replace(name="offset_over_step", value=value.value / steps[value.loop])


class _Batch:
    """One batch of the probe set on its way through the loops."""

    def __init__(self, model: LoopedTransformer, means: Means, items: Sequence[int]) -> None:
        self._model, self._means, self._items = model, means, items

    def measure(self, inputs: Tensor, targets: Tensor) -> None:
        """Add everything that `inputs` and their labels `targets`, both (B, S), show."""
        model, loops = self._model, self._model.config.num_loops
        embedded: Tensor = model.model.embed_tokens(inputs)
        handed_on, normalised = [embedded], []
        x, first, before = embedded, None, None
        for loop in range(1, loops + 1):
            if loop > 1:
                x = model.loop_input(handed_on[-1], embedded)
            with routing.recorded(model) as layers:
                x, first, _ = model.run_layers(x, first)
            self._add_routing(loop, layers, before)
            normalised.append(model.model.norm(x))
            handed_on.append(normalised[-1] if model.config.norm_per_loop else x)
            before = layers
        x, _, _ = model.run_layers(model.loop_input(handed_on[-1], embedded), first)
        beyond = model.model.norm(x) if model.config.norm_per_loop else x
        self._add_states([*handed_on, beyond])
        self._add_lens(lens.look(model, normalised, targets))

    def _add_states(self, h: Sequence[Tensor]) -> None:
        """From h(0), the embedding, to h(R + 1), one loop more than the model has."""
        for loop in range(1, len(h) - 1):
            self._add("step_size", loop, states.step_size(h[loop], h[loop - 1]))
            self._add("fixed_point_gap", loop, states.step_size(h[loop + 1], h[loop]))
            rows = states.rms_normalised(h[loop], self._model.config.rms_norm_eps)
            self._add("effective_rank", loop, states.effective_rank(rows))
            if loop > 1:
                self._add("update_cosine", loop, states.update_cosine(h[loop], h[loop - 1], h[loop - 2]))
            if loop > 1 and self._model.config.clp:
                self._add("offset", loop, states.offset(h[loop - 1]))

    def _add_routing(self, loop: int, layers: Sequence[Routing], before: Sequence[Routing] | None) -> None:
        for index, now in enumerate(layers):
            entropy, change = routing.entropy_and_change(now, None if before is None else before[index])
            self._add_by_head("attention_entropy", loop, index, entropy)
            if change is not None:
                self._add_by_head("attention_kl", loop, index, change)
            if now.share is not None:
                self._add_by_head("global_share", loop, index, now.share.double().mean(-1))
            self._add("head_rank", loop, states.effective_rank(now.heads).mean(-1), layer=index)
            if now.heads.shape[2] > 1:
                self._add("head_cosine", loop, routing.head_cosine(now.heads), layer=index)

    def _add_lens(self, seen: lens.Lens) -> None:
        labelled = seen.loss.shape[-1]
        for name, values in (("lens_loss", seen.loss), ("true_rank", seen.rank), ("lens_entropy", seen.entropy)):
            for loop, total in enumerate(values.sum(-1).tolist(), start=1):
                self._means.add(name, loop, total, labelled)
        for loop, losses in enumerate(seen.loss, start=1):
            totals = torch.zeros(len(self._items), dtype=losses.dtype).index_add_(0, seen.rows, losses).tolist()
            for item, total, count in zip(self._items, totals, self._labels(seen), strict=True):
                self._means.add("lens_loss", loop, total, count, item=item)
        if len(seen.change) and labelled:
            peaks = (seen.change >= seen.change.amax(0) - TIE).int().argmax(0)
            for index, total in enumerate(seen.change.sum(-1).tolist()):
                self._means.add("lens_kl", index + 2, total, labelled)
                self._means.add("peak_share", index + 2, float((peaks == index).sum()), labelled)

    def _labels(self, seen: lens.Lens) -> list[int]:
        counts: list[int] = torch.bincount(seen.rows, minlength=len(self._items)).tolist()
        return counts

    def _add(self, name: str, loop: int, values: Tensor, *, layer: int | None = None) -> None:
        """One value per sequence (B,), of a loop or of one of its layers; a layer's also counts for its loop."""
        total = float(values.sum())
        for place in dict.fromkeys((layer, None)):
            self._means.add(name, loop, total, len(values), layer=place)

    def _add_by_head(self, name: str, loop: int, layer: int, values: Tensor) -> None:
        """One value per sequence and head (B, H); they also count for their layer and loop."""
        for head, total in enumerate(values.sum(0).tolist()):
            self._means.add(name, loop, total, len(values), layer=layer, head=head)
        self._add(name, loop, values.mean(-1), layer=layer)
