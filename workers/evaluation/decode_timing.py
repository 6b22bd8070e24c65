"""Timing of decode steps, several decoders in turn, so that whatever else the machine does hits all of them alike."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workers.decoding import Decoder

WARM_UP_STEPS = 3
Clock = Callable[[], float]


def time_prefill(decoder: Decoder, ids: Tensor, clock: Clock) -> float:
    """Seconds to append the prompt `ids` (B, T) to an empty decoder, logits of the last slot only."""
    decoder.reset()
    _wait(ids.device)
    start = clock()
    decoder.prefill(ids, last_only=True)
    _wait(ids.device)
    return clock() - start


def time_steps(decoders: Sequence[Decoder], first: Tensor, steps: int, clock: Clock) -> list[list[float]]:
    """Seconds of each of `steps` greedy steps per decoder, after a warm-up that starts from the tokens `first` (B,).

    Decoders take turns, in the given order and backwards by turns, so that none always follows the same other one.
    """
    tokens = [first] * len(decoders)
    seconds: list[list[float]] = [[] for _ in decoders]
    turns = list(range(len(decoders)))
    for step in range(WARM_UP_STEPS + steps):
        for turn in turns if step % 2 == 0 else reversed(turns):
            _wait(first.device)
            start = clock()
            tokens[turn] = decoders[turn].step(tokens[turn]).argmax(-1)
            _wait(first.device)
            seconds[turn].append(clock() - start)
    return [times[WARM_UP_STEPS:] for times in seconds]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
