"""GEMM with NVFP4 weights: y = x · Wᵀ, W [N, K]. On the CPU and on GPUs from sm_80 on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Optional, Sequence, Union

import numpy as np

from . import _arrays, _core
from ._arguments import named
from ._errors import InvalidValueError, ShapeError, UnsupportedError
from ._overlap import require_apart
from ._quantize import (QuantizedTensor, allocate, finished, globals_of, quantized_tensor,
                        relayout_scales)
from ._types import Array, ArrayLike, Scalar

GemmPlan = _core.GemmPlan


class PackedWeights:
    """NVFP4 weights, [groups, N, K], in the order in which the kernels of their device read them
    (docs/layouts.md). `data`, uint8, holds everything, global scales included. Packed weights are pickled and copied
    with copy.deepcopy().

    data    uint8; on a GPU memory of the framework
    scope   'tensor': one global scale for each group; 'vector': one for each row; None: as the size
            of data says
    gate_up for weights packed for SwiGLU: rows of gate and up alternate in groups of this many,
            0: gate above up
    """

    def __init__(self, data: Array, rows: int, cols: int, groups: int = 1, scope: Optional[str] = None,
                 gate_up: Optional[int] = None) -> None:
        on_gpu = _is_cuda(data)
        if scope is None:
            size = int(np.prod(_arrays.shape_of(data), dtype=np.int64))
            scope = ("tensor" if size == _core.packed_bytes(groups, rows, cols, "tensor", on_gpu)
                     else "vector")
        self._data, self._gate_up = data, gate_up
        self._weights = _core.Packed(_arrays.codes_or_scales("data", data), groups, rows, cols,
                                     scope, gate_up)

    @classmethod
    def _of(cls, weights, gate_up, data=None):
        packed = cls.__new__(cls)
        packed._weights, packed._gate_up, packed._data = weights, gate_up, data
        return packed

    def __reduce__(self):
        return PackedWeights, (self.data, self.rows, self.cols, self.groups, self.scope, self._gate_up)

    @property
    def data(self) -> Array:
        return self._weights.data() if self._data is None else self._data

    @property
    def rows(self) -> int:
        """N, rows of each matrix"""
        return self._weights.rows

    @property
    def cols(self) -> int:
        """K, columns of each matrix"""
        return self._weights.cols

    @property
    def groups(self) -> int:
        return self._weights.groups

    @property
    def scope(self) -> str:
        return self._weights.scope

    @property
    def nbytes(self) -> int:
        """Size of codes and scales in bytes."""
        return self._weights.nbytes

    @property
    def on_gpu(self):
        return self._data is not None and _is_cuda(self._data)

    def __repr__(self):
        return repr(self._weights)


def _is_cuda(x):
    return _arrays.framework(x).is_cuda(x)


def _stacked(parts, stream):
    """Returns weights [N, K] stacked along N, with a global scale for each row."""
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


def _pack_on_gpu(parts, groups, gate_up, stream):
    first = parts[0]
    kind = _arrays.framework(first.codes)
    if len(parts) != groups and len(parts) != 1:
        each = len(parts) // groups
        if each * groups != len(parts):
            raise ShapeError(f"{len(parts)} parts, must be as many for each of {groups} groups")
        parts = [_stacked(parts[g * each:(g + 1) * each], stream) for g in range(groups)]
    down = parts[0].axis == "columns"
    outputs = sum(q.cols if down else q.rows for q in parts)
    if outputs % groups:
        raise ShapeError(f"groups = {groups}, must divide the {outputs} outputs of the weights")
    cols = parts[0].rows if down else parts[0].cols
    scope = "tensor" if all(q.scope == "tensor" for q in parts) else "vector"
    size = _core.packed_bytes(groups, outputs // groups, cols, scope, True)
    data = kind.empty((size,), "uint8", first.codes)
    views = [replace(q, codes=kind.aligned(q.codes))._operand() for q in parts]
    weights = _core.pack_weights(views, groups, gate_up,
                                 _arrays.codes_or_scales("data", data, written=True),
                                 kind.stream(first.codes, stream))
    return PackedWeights._of(weights, gate_up, kind.finish(data))


def pack_parts(parts, groups=1, gate_up=None, stream=None):
    if not parts:
        raise InvalidValueError("nothing to pack, must be one weight or more")
    for q in parts:
        quantized_tensor("a weight", q)
    if _is_cuda(parts[0].codes):
        return _pack_on_gpu(parts, groups, gate_up, stream)
    return PackedWeights._of(_core.pack_weights([q._operand() for q in parts], groups, gate_up), gate_up)


@_arrays.on_stream
def pack_weights(*parts: QuantizedTensor, groups: int = 1, gate_up: Optional[int] = None,
                 stream: Optional[int] = None) -> PackedWeights:
    """Packs NVFP4 weights [N, K] for gemm(). Several parts of one K (such as q, k and v) are packed
    one after the other, each with its own global scales.

    groups   G matrices [N, K] (experts): the parts, in order, are those of group 0, then of group 1
             …; or one part is [G · N, K]
    gate_up  for GEMM that ends in SwiGLU: rows of gate and up alternate in groups of this many, 0:
             gate above up
    Returns PackedWeights on the device of the parts. On the CPU a scale that is NaN or negative is
    an error; on a GPU, where the call does not wait, such blocks become zero.
    """
    return pack_parts(list(parts), groups, gate_up, stream)


@named
def unpack_weights(w: PackedWeights, group: int = 0, *, stream: Optional[int] = None) -> QuantizedTensor:
    """Returns group `group` as a QuantizedTensor [N, K]: axis 'rows', linear scales, and a global scale (a MULTIPLIER)
    for the tensor or for each row. Waits for a GPU."""
    like = w.data
    kind = _arrays.framework(like)
    blocks = w.cols // 16
    q = QuantizedTensor(
        kind.empty((w.rows, w.cols // 2), "uint8", like),
        kind.empty((w.rows, blocks), "uint8", like),
        kind.empty((1 if w.scope == "tensor" else w.rows,), "float32", like), (w.rows, w.cols),
        scope=w.scope)
    _core.unpack_weights_into(w._weights, group, q._operand(written=True), kind.stream(like, stream))
    return replace(q, codes=kind.finish(q.codes), scales=kind.finish(q.scales),
                   global_scale=kind.finish(q.global_scale))


@dataclass
class _Left:
    """The left operand of a GEMM."""

    operand: Any  #: the argument of the extension module
    like: Any  #: an array with the framework and the device
    shape: tuple
    dtype: str  #: default dtype of the result
    quantized: bool

    @property
    def rows(self):
        return int(np.prod(self.shape[:-1], dtype=np.int64))


def _left(x, w):
    if not isinstance(w, PackedWeights):
        raise TypeError(f"w is a {type(w).__name__}, must be what pack_weights returns")
    quantized = isinstance(x, QuantizedTensor)
    like = x.codes if quantized else x
    on_gpu = _is_cuda(like)
    if on_gpu != w.on_gpu:
        raise UnsupportedError(
            "x is on {}, and the weights are packed for {}".format(
                *("a GPU", "the CPU") if on_gpu else ("the CPU", "a GPU")))
    if not quantized:
        return _Left(_arrays.matrix("x", x), x, _arrays.shape_of(x),
                     _arrays.dtype_of(x), False)
    if x.layout != "linear" and not on_gpu:
        x = relayout_scales(x, "linear")
    return _Left(x._operand(), x.codes, x.shape, "float32", True)


@named
def plan_gemm(w: PackedWeights, rows: int, *, x_dtype: Any = "bfloat16", out_dtype: Any = "bfloat16",
              form: Optional[str] = None, shared_x: bool = False, epilogue: str = "none",
              swiglu_limit: float = float("inf"), batch_invariant: bool = False, max_workspace_bytes: int = 0,
              kernel: str = "", backend: str = "", top_k: int = 0, autotune: bool = False,
              arithmetic: str = "exact") -> GemmPlan:
    """Plans gemm() with w (of pack_weights) for results of up to `rows` rows.

    x_dtype    float32 (not on a GPU), bfloat16 or float16 (W4A16), or 'nvfp4' (W4A4)
    out_dtype  float32, bfloat16 or float16; 'swiglu_quantize' does not read it
    form       which rows of x [.., K] are multiplied by which of the G matrices [N, K] of w:
               'dense'        one matrix: x [M, K], y [M, N]
               'grouped'      gemm(row_ends=): rows that follow one another, x [M, K], y [M, N]
               'routed'       gemm(expert_ids=) [T, top_k]: a matrix for each row of y [T · top_k, N]
               'every_group'  every row by every matrix: x [M, G · K], y [M, G · N]
               None: dense, or every_group if w has several groups
    shared_x   every_group: all groups read one x [M, K]; routed: all experts of a token read its row
               of x [T, K] instead of rows of their own of [T · top_k, K]
    top_k      routed: experts of each token
    epilogue   'none'; for weights packed with gate_up, N = 2 · I: 'swiglu', y has I columns, or
               'swiglu_quantize', y is a QuantizedTensor of I columns
    swiglu_limit  gate is clamped to <= limit, up to [-limit, limit]
    batch_invariant      the same row of x gives the same bits whatever the number of rows
    max_workspace_bytes  GPU: memory for sums of parts of K, in addition to what x needs
    kernel     '', or the name of a kernel, as in GemmPlan.kernel
    autotune   GPU: the fastest kernel that `nvfp4 tune` or an earlier plan measured, from a file;
               otherwise it is measured now, which takes up to some seconds. Not while a graph is
               captured.
    arithmetic 'exact', or 'fp8': a Hopper or Ada GPU rounds x and w to E4M3, with a factor for each row,
               from a number of rows on. For dense W4A16 GEMMs with 16-bit results and N % 16 == 0
    Returns a GemmPlan: kernel, tile, workspace_bytes, rows, form, epilogue, x_dtype, out_dtype; its
    repr is one line. Raises ShapeError, InvalidValueError, UnsupportedError, TypeError.
    """
    if not isinstance(w, PackedWeights):
        raise TypeError(f"w is a {type(w).__name__}, must be what pack_weights returns")
    form = form or ("dense" if w.groups == 1 else "every_group")
    x_dtype, out_dtype = (d if d == "nvfp4" else _arrays.dtype_name(d)
                          for d in (x_dtype, out_dtype))
    return _core.plan_gemm(w._weights, rows, x_dtype, out_dtype, form, shared_x, epilogue,
                           swiglu_limit, batch_invariant, max_workspace_bytes, kernel, backend,
                           top_k, autotune, arithmetic)


def _factors(left, groups, alpha):
    """Returns (alpha, group_alpha) of `alpha`. A tensor on a GPU is not read by the host."""
    kind = _arrays.framework(left.like)
    _arrays.given("alpha", alpha)
    if isinstance(alpha, (int, float)):
        return float(alpha), None
    if not _is_cuda(left.like):
        values = _arrays.framework(alpha).host_floats(alpha)
        if values.size == 1:
            return float(values.reshape(-1)[0]), None
        count = values.size
        values = np.ascontiguousarray(values.reshape(-1))
    else:
        values = kind.floats(alpha, left.like)
        count = _arrays.shape_of(values)[0]
        if count == 1 and groups > 1:
            values, count = kind.repeat(values, groups), groups
    if count != groups:
        raise ShapeError(f"alpha has {count} elements, must have 1 or {groups}")
    return 1.0, _arrays.floats("alpha", values)


def _ends(name, values, like):
    """Returns `values` as int32 on the device of the weights."""
    kind = _arrays.framework(like)
    if _is_cuda(like):
        return _arrays.integers(name, kind.ints(values, like))
    host = _arrays.host_integers(name, values)
    if host and not -2**31 <= min(host) <= max(host) < 2**31:
        raise InvalidValueError(f"{name} has a value of {max(host, key=abs)}, must fit int32")
    return _arrays.integers(name, np.array(host, np.int32))


def _space(plan, left, given):
    size = plan.workspace_bytes
    if given is None and size:
        kind = _arrays.framework(left.like)
        given = kind.empty((size,), "uint8", left.like)
        kind.clear(given, 0)
    return None if given is None else _arrays.codes_or_scales("workspace", given, written=True)


@dataclass
class _Form:
    """The form of a GEMM: which rows of x are multiplied by which matrices."""

    name: str  #: argument `form` of plan_gemm()
    lead: tuple  #: the dimensions of y before its columns
    shared_x: bool = False
    top_k: int = 0

    @property
    def rows(self):
        return math.prod(self.lead)


def _form(left, w, row_ends, row_starts, expert_ids):
    lead = tuple(left.shape[:-1])
    if row_starts is not None and row_ends is None:
        raise InvalidValueError("row_starts without row_ends, must come with them")
    if row_ends is not None and expert_ids is not None:
        raise InvalidValueError("row_ends and expert_ids are given, must be one of them: a product is "
                                "grouped or routed")
    if row_ends is not None:
        if len(left.shape) != 2:
            raise InvalidValueError(f"x has {len(left.shape)} dimensions, must have two")
        return _Form("grouped", lead)
    if expert_ids is not None:
        tokens, top_k = _arrays.two_dimensions("expert_ids", expert_ids)
        if left.rows not in (tokens, tokens * top_k) or len(left.shape) != 2:
            raise ShapeError(f"x has shape {list(left.shape)}, must be [{tokens}, K] or "
                             f"[{tokens * top_k}, K] as expert_ids say")
        return _Form("routed", (tokens * top_k,), left.rows != tokens * top_k, top_k)
    if w.groups > 1:
        return _Form("every_group", lead, left.shape[-1] == w.cols)
    return _Form("dense", lead)


@dataclass
class _Result:
    """The result of a GEMM."""

    y: Any  #: result of gemm()
    operand: Any  #: the argument of the extension module
    options: Any = None  #: options of a quantized result

    def finished(self, kind, like):
        return finished(self.y, like) if self.options is not None else kind.finish(self.y)


def _dense_result(left, shape, dtype, out, unset):
    """Returns the result for `out`, or for a new array. `unset`: rows that no group covers must be 0 in a new array."""
    kind = _arrays.framework(left.like)
    y = out if out is not None else kind.empty(shape, dtype, left.like)
    if out is None and unset:
        kind.clear(y, 0)
    return _Result(y, _arrays.matrix("out", y, written=True))


def _quantized_result(left, shape, out, unset, global_scale, layout, scope, stream):
    kind = _arrays.framework(left.like)
    if global_scale is None and _is_cuda(left.like):
        raise InvalidValueError("out_global_scale = None, must be given on a GPU")
    y = (quantized_tensor("out", out) if out is not None
         else allocate(left.like, shape, layout=layout, scope=scope))
    if out is None and unset:
        for part in (y.codes, y.scales, y.global_scale):
            kind.clear(part, 0)
    options = _core.Options("max", "rows", 16, y.layout, y.scope, stream=kind.stream(left.like, stream),
                            **globals_of(left.like, multiplier=global_scale))
    return _Result(y, y._operand(written=True), options)


@_arrays.on_stream
@named
def gemm(x: Union[ArrayLike, QuantizedTensor], w: PackedWeights, *,
         row_ends: Optional[Union[Sequence[int], ArrayLike]] = None,
         row_starts: Optional[Union[Sequence[int], ArrayLike]] = None, expert_ids: Optional[ArrayLike] = None,
         out_dtype: Any = None, out: Optional[Union[Array, QuantizedTensor]] = None, alpha: Scalar = 1.0,
         bias: Optional[ArrayLike] = None, epilogue: str = "none", swiglu_limit: float = float("inf"),
         out_global_scale: Optional[Scalar] = None, out_layout: str = "linear", out_scope: str = "tensor",
         batch_invariant: bool = False, kernel: str = "", backend: str = "", autotune: bool = False,
         plan: Optional[GemmPlan] = None, workspace: Optional[Array] = None, stream: Optional[int] = None
         ) -> Union[Array, QuantizedTensor]:
    """Returns y = alpha · x · Wᵀ + bias, with FP32 sums that are rounded once.

    x          [..., K] float32, float16 or bfloat16 (W4A16; not float32 on a GPU), or a
               QuantizedTensor (W4A4); its global scales and those of the weights multiply into the
               result
    w          of pack_weights; with several groups and neither row_ends nor expert_ids every row is
               multiplied by every group: x [..., G · K] or [..., K], y [..., G · N]
    row_ends   integers [G], cumulative, never decreasing, the last at most M: rows [row_ends[g-1],
               row_ends[g]) of x [M, K] times matrix g. Rows of no group are not written (0 in a new
               result). The host neither reads nor checks int32 that are on the GPU.
    row_starts integers [G]: starts of the groups, if they differ from the previous ends
    expert_ids int32 [T, top_k]: row t · top_k + j of y is the same row of x [T · top_k, K], or row t
               of x [T, K], times matrix expert_ids[t, j]. For a GPU they must be on it; rows whose
               id names no matrix are not written (0 in a new result). The weights of a routing are
               not applied.
    out_dtype  that of x if not given; float32 for a quantized x
    out        [..., N] to write into; a QuantizedTensor for 'swiglu_quantize'
    alpha      a factor in addition to the global scales, or one for each group; on a GPU it may be a
               tensor on the GPU
    bias       float32 [N], or [G, N]
    epilogue   for weights packed with gate_up, N = 2 · I: 'swiglu', silu(gate) · up, y has I columns;
               'swiglu_quantize', the same, quantized along its rows with the method 'max'
    swiglu_limit  gate is clamped to <= limit, up to [-limit, limit]
    out_global_scale  'swiglu_quantize': a MULTIPLIER, a number, [1], or one for each row with
               out_scope='vector'; None: measured, on the CPU only
    out_layout, out_scope  'swiglu_quantize': of the result, as in quantize()
    autotune   see plan_gemm
    plan       of plan_gemm; it replaces out_dtype, epilogue, swiglu_limit, batch_invariant, kernel,
               backend and autotune. Made in the call if not given.
    workspace  uint8 [plan.workspace_bytes], zeros before its first use. Allocated if not given.
    Returns y [..., N], a QuantizedTensor for 'swiglu_quantize'. Raises ShapeError, TypeError,
    InvalidValueError, UnsupportedError. On a GPU the call enqueues its work and returns; a graph can
    capture it. With `out` and `workspace` it allocates nothing.
    """
    left = _left(x, w)
    kind = _arrays.framework(left.like)
    form = _form(left, w, row_ends, row_starts, expert_ids)
    if plan is not None:
        epilogue, out_dtype = plan.epilogue, out_dtype or plan.out_dtype
    cols = w.rows * (w.groups if form.name == "every_group" else 1) // (1 if epilogue == "none" else 2)
    unset = form.name == "grouped" or (form.name == "routed" and _is_cuda(left.like))
    if epilogue == "swiglu_quantize":
        result = _quantized_result(left, (*form.lead, cols), out, unset, out_global_scale, out_layout,
                                   out_scope, stream)
    else:
        dtype = _arrays.dtype_name(out_dtype or left.dtype)
        result = _dense_result(left, (*form.lead, cols), dtype, out, unset)
    if out is not None:
        require_apart({"out": out}, {"x": x, "w": w.data, "bias": bias, "workspace": workspace})
    alpha, group_alpha = _factors(left, w.groups, alpha)
    if plan is None:
        plan = plan_gemm(
            w, form.rows, x_dtype="nvfp4" if left.quantized else left.dtype,
            out_dtype="float32" if result.options is not None else _arrays.dtype_of(result.y),
            form=form.name, shared_x=form.shared_x, epilogue=epilogue, swiglu_limit=swiglu_limit,
            batch_invariant=batch_invariant, kernel=kernel, backend=backend, top_k=form.top_k,
            autotune=autotune)

    def integers(name, values):
        return None if values is None else _ends(name, values, left.like)

    _core.gemm(
        plan, left.operand, w._weights, result.operand, alpha, group_alpha,
        None if bias is None else _arrays.floats("bias", bias), integers("row_ends", row_ends),
        integers("row_starts", row_starts), _space(plan, left, workspace),
        kind.stream(left.like, stream), integers("expert_ids", expert_ids), result.options)
    return out if out is not None else result.finished(kind, left.like)
