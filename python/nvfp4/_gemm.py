"""Products with NVFP4 weights: y = x · Wᵀ, W [N, K]. On the CPU and on Hopper GPUs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import _arrays, _core
from ._errors import InvalidValueError, ShapeError, UnsupportedError
from ._quantize import QuantizedTensor, quantized_tensor, relayout_scales

PackedWeights = _core.PackedWeights
PackedGroups = _core.PackedGroups


@dataclass
class FragmentWeights:
    """NVFP4 weights on a GPU, [groups, N, K] in the order in which tensor cores read them
    (docs/layouts.md); the memory is the framework's. To keep them, keep the two arrays.

    tiles         uint8, 9 bytes for 16 elements, N and K rounded up to 64
    global_scale  float32 MULTIPLIERS: [groups], or [groups · N] with scope='vector'
    """

    tiles: Any
    global_scale: Any
    rows: int
    cols: int
    groups: int = 1
    scope: str = "tensor"

    def __post_init__(self):
        self._weights = _core.Fragments(
            _arrays.codes_or_scales("tiles", self.tiles),
            _arrays.floats("global_scale", self.global_scale), self.groups, self.rows, self.cols,
            self.scope)

    def __len__(self):
        return self.groups

    @property
    def nbytes(self):
        """Of codes and scales."""
        return self.groups * _core.fragment_bytes(self.rows, self.cols)


def _is_cuda(x):
    return _arrays.framework(x).is_cuda(x)


def gemm_workspace_bytes(rows, cols):
    """What a product on a GPU with a quantized x [rows, cols] needs: `workspace` of gemm()."""
    return 2 * rows * cols


def _packed_into(groups, stream):
    """The fragments of QuantizedTensors of one shape and scope, all of them on one GPU."""
    first = groups[0]
    kind = _arrays.framework(first.codes)
    down = first.axis == "columns"
    rows, cols = (first.cols, first.rows) if down else (first.rows, first.cols)
    scales = len(groups) * (1 if first.scope == "tensor" else rows)
    packed = FragmentWeights(
        kind.empty((len(groups) * _core.fragment_bytes(rows, cols),), "uint8", first.codes),
        kind.empty((scales,), "float32", first.codes), rows, cols, len(groups), first.scope)
    for g, q in enumerate(groups):
        q = replace(q, codes=kind.aligned(q.codes))
        packed._weights.pack(q.view(), g, kind.stream(first.codes, stream))
    packed.tiles, packed.global_scale = map(kind.finish, (packed.tiles, packed.global_scale))
    return packed


def _stacked(parts, stream):
    """Several weights one above the other, with a global scale for each row."""
    kind = _arrays.framework(parts[0].codes)
    if any(q.axis != "rows" or len(q.shape) != 2 for q in parts):
        raise UnsupportedError("several parts on a GPU must be [N, K] with axis='rows'")
    parts = [q if q.layout == "linear" else relayout_scales(q, "linear", stream=stream)
             for q in parts]
    return QuantizedTensor(
        kind.concatenate([q.codes for q in parts]), kind.concatenate([q.scales for q in parts]),
        kind.concatenate([q.global_scale if q.scope == "vector" else
                          kind.repeat(q.global_scale, q.rows) for q in parts]),
        (sum(q.rows for q in parts), parts[0].cols), scope="vector")


def pack_unchecked(parts, stream=None, grouped=False):
    """pack_weights or pack_groups; on a GPU nothing waits for it, and a block whose scale is NaN or
    negative becomes zero."""
    if not parts:
        raise InvalidValueError("nothing to pack, must be one weight or more")
    for q in parts:
        quantized_tensor("a weight", q)
    if not _is_cuda(parts[0].codes):
        return (_core.pack_groups if grouped else _core.pack_weights)([q.view() for q in parts])
    return _packed_into(parts if grouped or len(parts) == 1 else [_stacked(parts, stream)], stream)


@_arrays.on_stream
def pack_weights(*parts, stream=None):
    """Packs NVFP4 weights [N, K] once, before they are used. Several of one K are packed one after
    the other (q, k and v, say), each with its own global scales.

    Returns PackedWeights on the CPU, where a scale that is NaN or negative is an error;
    FragmentWeights on a GPU, where such blocks become zero.
    """
    return pack_unchecked(list(parts), stream)


def pack_groups(groups, *, stream=None):
    """Packs the weights [N, K] of every group of a grouped product (the experts), as pack_weights
    does. Returns PackedGroups or FragmentWeights."""
    groups = list(groups)
    if not groups:
        return _core.pack_groups([])
    quantized_tensor("a group", groups[0])
    return _pack_groups(groups[0], groups, stream=stream)


@_arrays.on_stream
def _pack_groups(first, groups, stream=None):
    return pack_unchecked(groups, stream, grouped=True)


@dataclass
class _Left:
    """The left side of a product."""

    operand: Any  #: what the module takes
    like: Any  #: an array that says framework and device
    shape: tuple
    dtype: str  #: of the result, if none is asked for
    quantized: bool


def _left(x, w, packed_by, *kinds):
    if not isinstance(w, kinds):
        raise TypeError(f"w is a {type(w).__name__}, must be what {packed_by} returns")
    quantized = isinstance(x, QuantizedTensor)
    like = x.codes if quantized else x
    on_gpu = _is_cuda(like)
    if on_gpu != isinstance(w, FragmentWeights):
        raise UnsupportedError(
            "x is on {}, and the weights are packed for {}".format(
                *("a GPU", "the CPU") if on_gpu else ("the CPU", "a GPU")))
    if not quantized:
        return _Left(_arrays.matrix("x", x), x, _arrays.shape_of(x),
                     _arrays.dtype_of(x), False)
    if x.layout != "linear" and not on_gpu:
        x = relayout_scales(x, "linear")
    return _Left(x.view(), x.codes, x.shape, "float32", True)


def _output(left, shape, dtype, out):
    if out is not None:
        return out
    return _arrays.framework(left.like).empty(shape, _arrays.dtype_name(dtype or left.dtype),
                                              left.like)


def _workspace(left, given):
    if not left.quantized:
        return None
    if given is None:
        rows = int(np.prod(left.shape[:-1], dtype=np.int64))
        size = gemm_workspace_bytes(rows, left.shape[-1])
        given = _arrays.framework(left.like).empty((size,), "uint8", left.like)
    return _arrays.codes_or_scales("workspace", given, written=True)


def _gpu_extras(left, groups, alpha, bias, workspace):
    """Keyword arguments of the products on a GPU; alpha is read there if it lies there."""
    kind = _arrays.framework(left.like)
    extras = {"workspace": _workspace(left, workspace)}
    if bias is not None:
        extras["bias"] = _arrays.floats("bias", bias)
    if alpha is None or (groups == 1 and isinstance(alpha, (int, float))):
        return extras if alpha is None else {**extras, "alpha": float(alpha)}
    values = (kind.constant(alpha, groups, left.like) if np.isscalar(alpha)
              else kind.floats(alpha, left.like))
    count = _arrays.shape_of(values)[0]
    if count not in (1, groups):
        raise ShapeError(f"alpha has {count} elements, must have 1 or {groups}")
    values = values if count == groups else kind.repeat(values, groups)
    return {**extras, "group_alpha": _arrays.floats("alpha", values)}


@_arrays.on_stream
def gemm(x, w, *, out_dtype=None, out=None, alpha=1.0, bias=None, batch_invariant=False,
         backend="", workspace=None, stream=None):
    """y = alpha · x · Wᵀ + bias, FP32 sums, rounded once.

    x          [..., K] float32, float16 or bfloat16 (W4A16; not float32 on a GPU), or a
               QuantizedTensor (W4A4); its global scales and those of the weights multiply into the
               result
    w          of pack_weights
    out_dtype  default that of x; float32 for a quantized one
    alpha      another factor, beside the global scales; on a GPU it may be a tensor there
    bias       float32 [N]
    workspace  GPU and W4A4: uint8 [gemm_workspace_bytes(M, K)], if it is not to be allocated
    Returns y [..., N]. Raises ShapeError, TypeError, InvalidValueError, UnsupportedError. On a GPU
    (Hopper) the work is only enqueued; with `out` and `workspace` nothing is allocated, and in any
    case a graph can be captured.
    """
    left = _left(x, w, "pack_weights", PackedWeights, FragmentWeights)
    kind = _arrays.framework(left.like)
    y = _output(left, (*left.shape[:-1], w.rows), out_dtype, out)
    target = _arrays.matrix("out", y, written=True)
    if isinstance(w, FragmentWeights):
        _core.fragment_gemm_into(
            left.operand, w._weights, target, batch_invariant=batch_invariant,
            stream=kind.stream(left.like, stream), **_gpu_extras(left, 1, alpha, bias, workspace))
    else:
        _core.gemm_into(left.operand, w, target, _arrays.number("alpha", alpha),
                        None if bias is None else _arrays.floats("bias", bias), batch_invariant,
                        backend)
    return y if out is not None else kind.finish(y)


def _host_alpha(alpha, groups):
    if alpha is None:
        return None
    _arrays.given("alpha", alpha)
    values = (np.full(1, alpha, np.float32) if isinstance(alpha, (int, float))
              else _arrays.framework(alpha).host_floats(alpha))
    if values.size not in (1, groups):
        raise ShapeError(f"alpha has {values.size} elements, must have 1 or {groups}")
    return np.ascontiguousarray(np.broadcast_to(values, (groups,)))


@_arrays.on_stream
def grouped_gemm(x, w, row_ends, *, row_starts=None, out_dtype=None, out=None, alpha=None,
                 bias=None, batch_invariant=False, backend="", workspace=None, stream=None):
    """Rows [row_ends[g-1], row_ends[g]) of x times the weights of group g (pack_groups).

    row_ends   integers, cumulative, never decreasing, the last at most M; rows after it are left
               as they are (0 in a new result). On a GPU, int32 that lie there are not read by the
               host, and not checked.
    row_starts GPU: where groups start, if not where the one before it ends
    alpha      one factor for each group, float32 [G]
    bias       float32 [G, N]
    workspace, stream  as of gemm
    """
    left = _left(x, w, "pack_groups", PackedGroups, FragmentWeights)
    kind = _arrays.framework(left.like)
    if len(left.shape) != 2:
        raise InvalidValueError(f"x has {len(left.shape)} dimensions, must have two")
    y = _output(left, (left.shape[0], w.rows), out_dtype, out)
    if isinstance(w, FragmentWeights):
        if out is None:
            kind.clear(y, 0)
        ends = kind.ints(row_ends, left.like)
        starts = (kind.ints([], left.like) if row_starts is None
                  else kind.ints(row_starts, left.like))
        _core.fragment_grouped_gemm_into(
            left.operand, w._weights, _arrays.integers("row_starts", starts),
            _arrays.integers("row_ends", ends), _arrays.matrix("out", y, written=True),
            batch_invariant=batch_invariant, stream=kind.stream(left.like, stream),
            **_gpu_extras(left, w.groups, alpha, bias, workspace))
    else:
        if row_starts is not None:
            raise UnsupportedError("row_starts is for products on a GPU")
        ends = _arrays.host_integers("row_ends", row_ends)
        if out is None and (not ends or ends[-1] < left.shape[0]):
            kind.clear(y, ends[-1] if ends else 0)
        values = _host_alpha(alpha, len(w))
        _core.grouped_gemm_into(
            left.operand, w, ends, _arrays.matrix("out", y, written=True), values,
            None if bias is None else _arrays.floats("bias", bias), batch_invariant, backend)
    return y if out is not None else kind.finish(y)
