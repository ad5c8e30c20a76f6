"""Devices by their names."""

import torch

from .._errors import DeviceError


def usable_device(name):
    """PyTorch's device of that name, on which something can be allocated."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as no:
        raise DeviceError(f"device = {name}: {(str(no).splitlines() or [type(no).__name__])[0]}") from no
    return device
