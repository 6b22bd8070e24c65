"""How well a model predicts a fixed evaluation set.

Text: `val/bits_per_byte` (comparable across tokenizers), `val/accuracy` of the next token. A task: exact match by depth
beside the majority baseline (`workers.evaluation.task_scores`). A mixture: the metrics of every part. Always
`val/loss`, in nats per label, over everything.

Always in the parameters' own type, without autocast, so that configurations trained in different precisions compare.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from workers.data import IGNORED, EvaluationSet
from workers.evaluation.task_scores import task_scores
from workers.models import LoopedTransformer


def evaluate(model: LoopedTransformer, data: EvaluationSet, batch_size: int) -> dict[str, float]:
    """Score the last loop's logits on the whole set, `batch_size` sequences at a time."""
    metrics: dict[str, float] = {}
    nats, labels = 0.0, 0
    for part in data.parts or (data,):
        own_nats, predictions = predict(model, part, batch_size)
        metrics |= _metrics(part, own_nats, predictions)
        nats, labels = nats + own_nats, labels + int((part.targets != IGNORED).sum())
    return {"val/loss": nats / labels} | metrics


def predict(model: LoopedTransformer, data: EvaluationSet, batch_size: int) -> tuple[float, NDArray[np.int64]]:
    """The summed loss in nats over all labels, and the predicted ids (E, S)."""
    device = next(model.parameters()).device
    nats, predictions = 0.0, []
    with torch.inference_mode():
        for start in range(0, len(data.inputs), batch_size):
            inputs = torch.from_numpy(data.inputs[start : start + batch_size]).to(device)
            targets = torch.from_numpy(data.targets[start : start + batch_size]).to(device)
            logits = model(inputs).logits
            nats += cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum").item()
            predictions.append(logits.argmax(-1).cpu().numpy())
    return nats, np.concatenate(predictions)


def _metrics(data: EvaluationSet, nats: float, predictions: NDArray[np.int64]) -> dict[str, float]:
    """Metrics from the summed loss in nats and the predicted ids (E, S)."""
    if data.task is not None:
        return task_scores(data, predictions)
    labelled = data.targets != IGNORED
    metrics = {"val/accuracy": float((predictions == data.targets)[labelled].mean())}
    if data.target_bytes is not None:
        metrics["val/bits_per_byte"] = nats / math.log(2) / data.target_bytes
    return metrics
