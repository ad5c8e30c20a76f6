"""Products with NVFP4 weights: y = x · Wᵀ, W [N, K]. On the CPU."""

import numpy as np

from . import _arrays, _core
from ._errors import InvalidValueError, UnsupportedError
from ._quantize import QuantizedTensor, relayout_scales

PackedWeights = _core.PackedWeights
PackedGroups = _core.PackedGroups


def _cpu_only(name, x):
    if _arrays.framework(x).is_cuda(x):
        raise UnsupportedError(f"{name} is on a GPU: products run on the CPU")


def pack_weights(*parts):
    """Packs NVFP4 weights [N, K] once, before they are used. Several of one K are packed one after
    the other (q, k and v, say), each with its own global scales."""
    for q in parts:
        _cpu_only("parts", q.codes)
    return _core.pack_weights([q.view() for q in parts])


def pack_groups(groups):
    """Packs the weights [N, K] of every group of a grouped product (the experts)."""
    groups = list(groups)
    for q in groups:
        _cpu_only("groups", q.codes)
    return _core.pack_groups([q.view() for q in groups])


def _left(x):
    """(operand, array that says the framework, shape) of a dense or quantized left side."""
    if not isinstance(x, QuantizedTensor):
        _cpu_only("x", x)
        return _arrays.matrix("x", x), x, _arrays.shape_of(x), _arrays.framework(x).view(x)[1]
    _cpu_only("x", x.codes)
    if x.layout != "linear":
        x = relayout_scales(x, "linear")
    return x.view(), x.codes, x.shape, "float32"


def _output(like, shape, dtype, out):
    if out is not None:
        return out
    return _arrays.framework(like).empty(shape, dtype, like)


def gemm(x, w, *, out_dtype=None, out=None, alpha=1.0, bias=None, batch_invariant=False,
         backend=""):
    """y = alpha · x · Wᵀ + bias, FP32 sums, rounded once.

    x          [..., K] float32, float16 or bfloat16 (W4A16), or a QuantizedTensor (W4A4); its
               global scales and those of the weights multiply into the result
    w          of pack_weights
    out_dtype  default that of x; float32 for a quantized one
    alpha      another factor, beside the global scales
    bias       float32 [N]
    Returns y [..., N]. Raises ShapeError, TypeError, InvalidValueError.
    """
    left, like, shape, dtype = _left(x)
    y = _output(like, (*shape[:-1], w.rows), _arrays.dtype_name(out_dtype or dtype), out)
    _core.gemm_into(left, w, _arrays.matrix("out", y), _arrays.number("alpha", alpha),
                    None if bias is None else _arrays.floats("bias", bias), batch_invariant,
                    backend)
    return y if out is not None else _arrays.framework(like).finish(y)


def grouped_gemm(x, w, row_ends, *, out_dtype=None, out=None, alpha=None, bias=None,
                 batch_invariant=False, backend=""):
    """Rows [row_ends[g-1], row_ends[g]) of x times the weights of group g (pack_groups).

    row_ends   integers, cumulative, never decreasing, the last at most M; rows after it are left
               as they are (0 in a new result)
    alpha      one factor for each group, float32 [G]
    bias       float32 [G, N]
    """
    left, like, shape, dtype = _left(x)
    ends = [int(e) for e in np.asarray(row_ends).reshape(-1)]
    if len(shape) != 2:
        raise InvalidValueError(f"x has {len(shape)} dimensions, must have two")
    y = _output(like, (shape[0], w.rows), _arrays.dtype_name(out_dtype or dtype), out)
    if out is None and (not ends or ends[-1] < shape[0]):
        y[ends[-1] if ends else 0:] = 0
    _core.grouped_gemm_into(
        left, w, ends, _arrays.matrix("out", y),
        None if alpha is None else _arrays.floats("alpha", alpha),
        None if bias is None else _arrays.floats("bias", bias), batch_invariant, backend)
    return y if out is not None else _arrays.framework(like).finish(y)
