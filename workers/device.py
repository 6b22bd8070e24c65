"""The device that this process computes on."""

import torch


def device() -> torch.device:
    """The first GPU that this process sees, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name() -> str:
    """What the lock calls the device: one name per physical device of a node, whichever of them a process can see."""
    if torch.cuda.is_available():
        return f"cuda-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    return "cpu"
