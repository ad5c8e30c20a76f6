"""Quantize and dequantize: x ≈ e2m1 · scale · global_scale, all scales are multipliers."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Optional, Tuple

import numpy as np

from . import _arrays, _core
from ._arguments import named
from ._errors import InvalidValueError, ShapeError, UnsupportedError
from ._overlap import require_apart
from ._types import Array, ArrayLike, Scalar


@dataclass(eq=False, repr=False)
class QuantizedTensor:
    """An NVFP4 matrix: x ≈ e2m1(codes) · scales · global_scale, all scales are multipliers. It is a value: it is
    copied, moved, compared, pickled and indexed by rows.

    codes         uint8, two elements in each, the one with the even K index in the low nibble:
                  [..., K/2], or [K/2, cols] with axis='columns'
    scales        E4M3 bytes, one for each `block` elements, in `layout`: [..., K/block] if linear
    global_scale  float32 multipliers: [1], or one for each row or column with scope='vector'.
                  ModelOpt's weight_scale_2; the reciprocal of compressed-tensors'
                  weight_global_scale and of FlashInfer's global_sf.
    shape         of the unquantized matrix
    """

    codes: Any
    scales: Any
    global_scale: Any
    shape: Tuple[int, ...]
    axis: str = "rows"
    block: int = 16
    layout: str = "linear"
    scope: str = "tensor"

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def cols(self) -> int:
        return self.shape[-1]

    @property
    def device(self) -> Any:
        """The device of the arrays, as their framework names it; "cpu" for NumPy."""
        return getattr(self.codes, "device", "cpu")

    @property
    def nbytes(self) -> int:
        """Size of codes, scales and global scales in bytes."""
        sizes = [math.prod(_arrays.shape_of(getattr(self, name))) for name in _ARRAYS]
        return sizes[0] + sizes[1] + 4 * sizes[2]

    def dequantize(self, dtype: Any = "float32", *, out: Optional[Array] = None, stream: Optional[int] = None,
                   backend: str = "") -> Array:
        """Calls nvfp4.dequantize."""
        return dequantize(self, dtype, out=out, stream=stream, backend=backend)

    def to(self, device: Any) -> QuantizedTensor:
        """Returns the tensor on a device, itself if it is there. Only tensors of PyTorch move. A dtype is a TypeError:
        dequantize(dtype) has one."""
        return self._with(lambda x: _arrays.framework(x).to(x, device))

    def clone(self) -> QuantizedTensor:
        """Returns a copy with arrays of its own."""
        return self._with(_clone)

    def __getitem__(self, rows: Any) -> QuantizedTensor:
        """Returns rows: a number, a slice or an array of indices into the first dimension. Consecutive rows share
        memory."""
        if isinstance(rows, tuple) or rows is None or rows is Ellipsis:
            raise TypeError(f"index = {rows!r}, must be a row, a slice of rows or an array of rows")
        if (self.axis, self.layout) != ("rows", "linear"):
            raise UnsupportedError(f"a QuantizedTensor with axis = '{self.axis}' and layout = '{self.layout}', must have "
                                   "axis 'rows' and layout 'linear' to be indexed; see relayout_scales")
        *lead, depth = self.shape
        if not lead:
            raise ShapeError(f"a QuantizedTensor of shape {list(self.shape)} is one row, must have two dimensions or more "
                             "to be indexed")
        take = lambda x, *last: _clone_unless_contiguous(x.reshape(*lead, *last)[rows])
        codes, scale = take(self.codes, depth // 2), self.global_scale
        if self.scope == "vector":
            scale = take(scale).reshape(-1)
        return replace(self, codes=codes, scales=take(self.scales, depth // self.block), global_scale=scale,
                       shape=(*_arrays.shape_of(codes)[:-1], depth))

    def __eq__(self, other: object) -> bool:
        """Reports whether all bytes and fields are equal. Waits for a GPU."""
        if not isinstance(other, QuantizedTensor):
            return NotImplemented
        fixed = [field.name for field in fields(self) if field.name not in _ARRAYS]
        return all(getattr(self, name) == getattr(other, name) for name in fixed) and all(
            np.array_equal(*(_arrays.framework(x).host_bytes(x) for x in (getattr(self, name), getattr(other, name))))
            for name in _ARRAYS)

    __hash__ = None

    def __repr__(self) -> str:
        others = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)
                  if field.name not in (*_ARRAYS, "shape") and getattr(self, field.name) != field.default]
        return f"QuantizedTensor({', '.join([f'shape={self.shape}', f'device={str(self.device)!r}', *others])})"

    def _with(self, function):
        """Returns this tensor with function(array) instead of each array."""
        arrays = {name: function(getattr(self, name)) for name in _ARRAYS}
        return self if all(arrays[name] is getattr(self, name) for name in _ARRAYS) else replace(self, **arrays)

    def _operand(self, written=False):
        """Returns the operand that the extension module reads or, if `written`, writes."""
        kind = _core.QuantizedSpan if written else _core.QuantizedView
        if not self.shape or min(self.shape) < 0:
            raise ShapeError(f"a QuantizedTensor of shape {list(self.shape)}, must have one dimension "
                             "or more, and none that is negative")
        return kind(
            _arrays.codes_or_scales("codes", self.codes, written),
            _arrays.codes_or_scales("scales", self.scales, written),
            _arrays.floats("global_scale", self.global_scale, written),
            self.rows, self.cols, self.axis, self.block, self.layout, self.scope)


#: The fields of a QuantizedTensor that are arrays.
_ARRAYS = "codes", "scales", "global_scale"


def _clone(x):
    return x.clone() if hasattr(x, "clone") else x.copy() if hasattr(x, "copy") else np.array(x)


def _clone_unless_contiguous(x):
    return x if _arrays.is_contiguous(x) else _clone(x)


def known_method(method, argument="method", others=()):
    """Returns `method`. Raises InvalidValueError for an unknown name that is not one of `others`."""
    if isinstance(method, str) and method not in (known := [*_core.method_names(), *others]):
        raise InvalidValueError(f"{argument} = '{method}', must be one of {', '.join(known)}", code="NV0303")
    return method


def quantized_tensor(name, q):
    """Returns `q`. Raises TypeError unless it is a QuantizedTensor."""
    if not isinstance(q, QuantizedTensor):
        raise TypeError(f"{name} is a {type(q).__name__}, must be a QuantizedTensor")
    return q


def scale_shape(shape, axis, block, layout):
    """Returns the shape of the block scales of a matrix."""
    if axis == "columns":
        vectors, depth = shape[1], shape[0]
    else:
        vectors, depth = math.prod(shape[:-1]), shape[-1]
    blocks = depth // block
    if layout == "linear":
        return (blocks, vectors) if axis == "columns" else (*shape[:-1], blocks)
    padded = -(-blocks // 4) * 4
    if layout == "packed_mn_major":
        return (padded // 4, -(-vectors // 4) * 4, 4)
    return (_core.scale_bytes(layout, vectors, blocks) // max(padded, 1), padded)


def allocate(like, shape, axis="rows", block=16, layout="linear", scope="tensor",
             scale_dtype="uint8", flat_scales=False):
    """Returns an uninitialized QuantizedTensor in the framework and on the device of `like`. `flat_scales`: scales of
    one dimension."""
    if not shape or min(shape) < 0:
        raise ShapeError(f"x has shape {list(shape)}, must have one dimension or more")
    if axis == "columns" and len(shape) != 2:
        raise ShapeError(f"x has shape {list(shape)}, must have two dimensions with axis='columns'")
    if block not in (16, 32):
        raise InvalidValueError(f"block = {block}, must be 16 or 32")
    if scale_dtype not in ("uint8", "float8_e4m3fn"):
        raise InvalidValueError(f"scale_dtype = {scale_dtype}, must be uint8 or float8_e4m3fn")
    depth = shape[0] if axis == "columns" else shape[-1]
    if depth % block:
        raise ShapeError(f"x has shape {list(shape)}, K = {depth} must be a multiple of {block}", code="NV0401")
    make = _arrays.framework(like).empty
    code_shape = (shape[0] // 2, shape[1]) if axis == "columns" else (*shape[:-1], shape[-1] // 2)
    vectors = shape[1] if axis == "columns" else math.prod(shape[:-1])
    scales = scale_shape(shape, axis, block, layout)
    return QuantizedTensor(
        make(code_shape, "uint8", like),
        make((math.prod(scales),) if flat_scales else scales, scale_dtype, like),
        make((1 if scope == "tensor" else vectors,), "float32", like),
        tuple(shape), axis, block, layout, scope)


def finished(q, like):
    """Returns `q` with arrays of the caller's framework."""
    finish = _arrays.framework(like).finish
    q.codes, q.scales, q.global_scale = map(finish, (q.codes, q.scales, q.global_scale))
    return q


def globals_of(like, multiplier=None, divisor=None):
    """Returns the keyword arguments of _core.Options for a multiplier, a divisor, or both."""
    given = [g for g in (multiplier, divisor) if g is not None]
    if not given:
        return {}
    host = []
    for g in given:
        _arrays.given("global scale", g)
        if not isinstance(g, (int, float)) and not np.isscalar(g):
            kind = _arrays.framework(g)
            if kind.is_cuda(g):
                return {"globals": kind.view(kind.device_pairs(multiplier, divisor, g))[0]}
            g = kind.host_floats(g)
        host.append(np.atleast_1d(np.asarray(g, np.float32)).reshape(-1))
    if len({len(g) for g in host}) != 1:
        raise ShapeError(f"global_scale has {len(host[0])} elements and global_divisor "
                         f"{len(host[1])}, must have as many")
    # Pairs if both are given, otherwise the given one.
    values = np.ascontiguousarray(np.stack(host, -1) if len(host) == 2 else host[0])
    return {"globals": values, "divisor": multiplier is None}


@_arrays.on_stream
@named
def quantize(x: ArrayLike, method: str = "mse", *, global_scale: Optional[Scalar] = None,
             global_divisor: Optional[Scalar] = None, axis: str = "rows", block: int = 16,
             layout: str = "linear", scope: str = "tensor", scale_dtype: Any = "uint8",
             weights: Optional[ArrayLike] = None, hessian: Optional[ArrayLike] = None,
             check_finite: bool = False, out: Optional[QuantizedTensor] = None, stream: Optional[int] = None,
             backend: str = "") -> QuantizedTensor:
    """Quantizes a matrix to NVFP4.

    x             [..., K] float32, float16 or bfloat16, of NumPy, PyTorch, CuPy, JAX or anything
                  that exports memory; not copied. Rows may have a stride.
    method        'mse' (the scale with the least squared error of all 126, for each block),
                  'max' (amax/6, TransformerEngine's bits), 'four_over_six'
    global_scale  a MULTIPLIER, x ≈ e2m1 · scale · global_scale: a number, [1], or one for each row
                  with scope='vector'. Measured from x if neither this nor global_divisor is given.
    global_divisor  the DIVISOR, as in nvfp4_quantize and compressed-tensors. It decides the bytes.
                  If only one of the two is given, the other is its rounded reciprocal; give both,
                  as global_scales() returns them, to keep both.
    axis          'rows': blocks along the rows; 'columns': blocks down the columns of [K, N]
    block         16, or 32 (not for 'max')
    layout        of the block scales: linear, tiled_128x4, tiled_8x4, packed_row_major, packed_mn_major
    scale_dtype   'uint8' or 'float8_e4m3fn': the same bytes
    weights       'mse': float32 [K], the cost of an error at each position
    hessian       'mse': float32 [K, block], see gram_into in nvfp4/quantize.h
    check_finite  refuse NaN and infinities (CPU). Without it they are no error, as in hardware, so
                  that a call needs no wait and fits into a CUDA graph: a NaN counts in no maximum
                  and has the code of +6; an infinity has that of ±6 under a block scale of 448, and
                  a global scale measured from it is 1. quantize_checkpoint() always refuses them.
    out           a QuantizedTensor to write into
    stream        CUDA: an integer cudaStream_t; the framework's current stream if not given
    Returns a QuantizedTensor of the framework and device of x. Raises ShapeError,
    InvalidValueError, UnsupportedError, TypeError.
    """
    source = _arrays.matrix("x", x)
    kind = _arrays.framework(x)
    q = quantized_tensor("out", out) if out is not None else allocate(
        x, _arrays.shape_of(x), axis, block, layout, scope, _arrays.dtype_name(scale_dtype))

    options = _core.Options(
        known_method(method), axis, block, layout, scope,
        weights=None if weights is None else _arrays.floats("weights", weights),
        hessian=None if hessian is None else _arrays.matrix("hessian", hessian),
        check_finite=check_finite, backend=backend, stream=kind.stream(x, stream),
        **globals_of(x, multiplier=global_scale, divisor=global_divisor))
    target = q._operand(written=True)
    require_apart({"out": out}, {"x": x, "weights": weights, "hessian": hessian})
    _core.quantize_into(source, target, options)
    return q if out is not None else finished(q, x)


@_arrays.on_stream
@named
def dequantize(q: QuantizedTensor, dtype: Any = "float32", *, out: Optional[Array] = None,
               stream: Optional[int] = None, backend: str = "") -> Array:
    """Dequantizes `q`: (e2m1 · scale) · global_scale, rounded once to FP32, then to `dtype` (float32,
    float16, bfloat16). The result is of the framework and on the device of q.codes."""
    view = quantized_tensor("q", q)._operand()
    kind = _arrays.framework(q.codes)
    name = _arrays.dtype_name(dtype)
    if name not in _arrays.FLOATS:
        raise TypeError(f"dtype = {name}, must be {' or '.join(_arrays.FLOATS)}")
    y = kind.empty(q.shape, name, q.codes) if out is None else out
    target = _arrays.matrix("out", y, written=True)
    require_apart({"out": out}, {"q": q})
    _core.dequantize_into(view, target, backend, kind.stream(q.codes, stream))
    return kind.finish(y) if out is None else out


@_arrays.on_stream
@named
def amax(x: ArrayLike, scope: str = "tensor", axis: str = "rows", *, stream: Optional[int] = None,
         backend: str = "") -> Array:
    """Returns the largest magnitude of x as float32 [1], or of each row or column with scope='vector'. NaN is
    ignored."""
    kind = _arrays.framework(x)
    source = _arrays.matrix("x", x)
    shape = _arrays.shape_of(x)
    count = 1 if scope == "tensor" else shape[-1] if axis == "columns" else math.prod(shape[:-1])
    out = kind.empty((count,), "float32", x)
    _core.amax_into(source, _arrays.floats("out", out), scope, axis, backend, kind.stream(x, stream))
    return kind.finish(out)


@_arrays.on_stream
@named
def global_scales(x: ArrayLike, method: str = "mse", scope: str = "tensor", axis: str = "rows", *,
                  stream: Optional[int] = None, backend: str = "") -> Tuple[Array, Array]:
    """Returns the global scales that quantize() derives from x, (multipliers, divisors): float32 [1], or one for each
    row or column with scope='vector'."""
    kind = _arrays.framework(x)
    largest = amax(x, scope, axis, stream=stream, backend=backend)
    count = _arrays.shape_of(largest)[0]
    pairs = kind.empty((count, 2), "float32", x)
    _core.global_scales_into(_arrays.floats("amax", largest), _arrays.floats("pairs", pairs),
                             known_method(method), kind.stream(x, stream))
    pairs = kind.finish(pairs)
    return pairs[:, 0], pairs[:, 1]


@named
def quantization_error(x: ArrayLike, q: QuantizedTensor, *, backend: str = "") -> Tuple[float, float]:
    """Returns (Σ (x − x̂)², Σ x²) of a matrix x and its dequantized form x̂. Runs on the CPU."""
    return _core.quantization_error(_arrays.matrix("x", x), quantized_tensor("q", q)._operand(), backend)


@_arrays.on_stream
@named
def relayout_scales(q: QuantizedTensor, layout: str, *, stream: Optional[int] = None) -> QuantizedTensor:
    """Returns `q` with its block scales in another layout. The codes are shared, not copied."""
    kind = _arrays.framework(quantized_tensor("q", q).scales)
    vectors, depth = (q.cols, q.rows) if q.axis == "columns" else (q.rows, q.cols)
    scales = kind.empty(scale_shape(q.shape, q.axis, q.block, layout),
                        _arrays.dtype_of(q.scales), q.scales)
    if q.axis == "columns":
        raise InvalidValueError("relayout_scales: axis = 'columns', must be 'rows'")
    _core.relayout_scales(
        _arrays.codes_or_scales("scales", q.scales), q.layout,
        _arrays.codes_or_scales("scales", scales), layout, vectors, depth // q.block,
        stream=kind.stream(q.scales, stream))
    return QuantizedTensor(q.codes, kind.finish(scales), q.global_scale, q.shape, q.axis, q.block,
                           layout, q.scope)
