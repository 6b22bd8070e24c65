"""How well a model predicts a fixed evaluation set.

Text: `val/bits_per_byte` (comparable across tokenizers), `val/loss` in nats per token, `val/accuracy` of the next
token. A task: `tasks/<name>/accuracy`, the share of answers in the second half of the slots that are right, beside
`tasks/<name>/majority`, what always giving the most frequent of these answers would score; and `val/loss` over all
answers.

Always in the parameters' own type, without autocast, so that configurations trained in different precisions compare.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from workers.data import IGNORED, EvaluationSet
from workers.models import LoopedTransformer


def evaluate(model: LoopedTransformer, data: EvaluationSet, batch_size: int) -> dict[str, float]:
    """Score the last loop's logits on the whole set, `batch_size` sequences at a time."""
    device = next(model.parameters()).device
    nats, predictions = 0.0, []
    with torch.inference_mode():
        for start in range(0, len(data.inputs), batch_size):
            inputs = torch.from_numpy(data.inputs[start : start + batch_size]).to(device)
            targets = torch.from_numpy(data.targets[start : start + batch_size]).to(device)
            logits = model(inputs).logits
            nats += cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum").item()
            predictions.append(logits.argmax(-1).cpu().numpy())
    return _metrics(data, nats, np.concatenate(predictions))


def _metrics(data: EvaluationSet, nats: float, predictions: NDArray[np.int64]) -> dict[str, float]:
    """Metrics from the summed loss in nats and the predicted ids (E, S)."""
    labelled = data.targets != IGNORED
    metrics = {"val/loss": nats / int(labelled.sum())}
    if data.target_bytes is not None:
        metrics["val/bits_per_byte"] = nats / math.log(2) / data.target_bytes
    if data.task is None:
        metrics["val/accuracy"] = float((predictions == data.targets)[labelled].mean())
        return metrics
    labelled[:, : labelled.shape[1] // 2] = False
    answers = data.targets[labelled]
    metrics[f"tasks/{data.task}/accuracy"] = float((predictions[labelled] == answers).mean())
    metrics[f"tasks/{data.task}/majority"] = float(np.bincount(answers).max() / len(answers))
    return metrics
