"""Devices by their names."""

import torch

from .._errors import DeviceError


def default_device():
    """Returns "cuda" where there is a GPU, otherwise "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def usable_device(name):
    """Returns PyTorch's device of that name. Raises DeviceError if nothing can be allocated on it."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as no:
        raise DeviceError(f"device = {name}: {(str(no).splitlines() or [type(no).__name__])[0]}") from no
    return device
