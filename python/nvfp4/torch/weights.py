"""The weight of a linear layer, and its quantization."""

import sys

import torch
from torch import nn

from .._errors import FormatError, InvalidValueError, UnsupportedError
from .._quantize import global_scales, quantize


def is_linear(module):
    """Reports whether a module computes x · Wᵀ + b as nn.Linear or as Conv1D of transformers does."""
    known = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward and "forward" not in vars(module)
    return (known and not isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear)) or is_transposed(module)


def is_transposed(module):
    """Reports whether a module is a Conv1D of transformers, which stores [K, N]."""
    transformers = sys.modules.get("transformers.pytorch_utils")
    return transformers is not None and type(module) is transformers.Conv1D


def matrix_of(module):
    """Returns the weight [N, K] of a linear layer."""
    weight = module.weight.detach()
    return weight.t().contiguous() if is_transposed(module) else weight


def quantized(matrix, method, scale):
    """Returns a QuantizedTensor of W [N, K]. `scale`: (multiplier, divisor), or None to measure them."""
    multiplier, divisor = global_scales(matrix, method) if scale is None else scale
    return quantize(matrix, method, global_scale=multiplier, global_divisor=divisor,
                    scale_dtype="float8_e4m3fn", check_finite=matrix.device.type == "cpu")


def positive(name, scales):
    """Returns scales as they are stored. Raises FormatError with the first that is not positive and finite."""
    wrong = scales[~((scales > 0) & scales.isfinite())]
    if wrong.numel():
        raise FormatError(f"tensor '{name}': {wrong[0].item()}, must be positive and finite")
    return scales


def check_values(name, tensor):
    """Raises UnsupportedError for a tensor without values, and InvalidValueError for one with NaN or infinities."""
    check_memory(name, tensor)
    if tensor.numel() and not bool(torch.stack(tensor.aminmax()).isfinite().all()):
        raise InvalidValueError(f"{name}: has NaN or infinities, all elements must be finite", code="NV0310")


def check_memory(name, tensor):
    if tensor.is_meta:
        raise UnsupportedError(f"{name} is on the device meta, must be on cpu or cuda")


def quantizes_inputs(scheme):
    """Returns whether a scheme is W4A4. Raises InvalidValueError for an unknown one."""
    if scheme not in ("w4a4", "w4a16"):
        raise InvalidValueError(f"scheme = {scheme!r}, must be 'w4a4' or 'w4a16'")
    return scheme == "w4a4"
