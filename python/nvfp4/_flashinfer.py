"""FlashInfer's names, arguments and conventions.

FlashInfer's global scales have two senses, which these functions keep. Functions that quantize take
DIVISORS (448 · 6 / amax: x is multiplied by it). e2m1_and_ufp8sf_scale_to_float and the alpha of
GEMM are MULTIPLIERS (the result is multiplied by it). FlashInfer's docstring of rmsnorm_fp4quant says
that it divides; its kernels and tests multiply. Results have the bits of FlashInfer with
FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH=1, which are TransformerEngine's; FlashInfer's fast path uses the
GPU's approximate reciprocal.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _core
from ._arguments import named
from ._errors import InvalidValueError, ShapeError, UnsupportedError
from ._gemm import PackedWeights, gemm, pack_parts
from ._overlap import require_apart
from ._quantize import (QuantizedTensor, allocate, amax, dequantize, finished, globals_of, known_method,
                        scale_shape)
from ._types import Array, ArrayLike, Scalar


class SfLayout(Enum):
    """Layout of the block scales."""

    layout_128x4 = 0  #: tiles of 128 rows by 4 blocks, as cuBLASLt, CUTLASS and tcgen05 read them
    layout_8x4 = 1  #: tiles of 8 rows by 4 blocks, TensorRT-LLM at small M
    layout_linear = 2  #: row-major, as in checkpoints


_LAYOUTS = {
    SfLayout.layout_128x4: "tiled_128x4",
    SfLayout.layout_8x4: "tiled_8x4",
    SfLayout.layout_linear: "linear",
}


def _require_16(sf_vec_size):
    if sf_vec_size != 16:
        raise UnsupportedError(f"sf_vec_size = {sf_vec_size}, must be 16: 32 is MXFP4")


def _layout_of(given):
    try:
        return _LAYOUTS[SfLayout(given)]
    except ValueError:
        raise InvalidValueError(f"sfLayout = {given!r}, must be one of "
                                f"{', '.join(map(str, SfLayout))}") from None


def _given_or_one(global_scale):
    return 1.0 if global_scale is None else global_scale


def _global_of(like, name, given):
    """Returns a global scale as float32 [1] on the device of `like`. One that is on that GPU is not read by the
    host."""
    kind = _arrays.framework(like)
    if kind.is_cuda(like) and hasattr(given, "reshape"):
        return kind.floats(given, like)
    return kind.constant(_arrays.number(name, _given_or_one(given)), 1, like)


def layout_named(swizzled, tiles_of_8=False):
    """Returns the name of the layout of scales that FlashInfer's two flags mean."""
    return ("tiled_8x4" if tiles_of_8 else "tiled_128x4") if swizzled else "linear"


def _token_scales(x, base, stream, backend):
    """Returns (divisors, multipliers) of the rows of x, as FlashInfer computes them. `base` is the multiplier of a row
    whose largest magnitude is 1. A row of zeros has the multiplier 0."""
    largest = amax(x, scope="vector", stream=stream, backend=backend)
    target = np.float32(1) / np.float32(_arrays.number("a_global_sf", base))
    # PyTorch divides a number by a tensor as number · reciprocal, which rounds twice.
    target = _arrays.framework(x).constant(float(target), 1, x)
    with np.errstate(over="ignore", invalid="ignore"):
        divisors = target / (largest + (largest == 0))
        divisors = divisors.clip(max=float(np.finfo(np.float32).max))
        divisors = divisors + (divisors == 0)
        return divisors, 1.0 / divisors * (largest != 0)


def _options(x, layout, stream, method, backend, scope="tensor", **scale):
    return _core.Options(known_method(method), layout=layout, scope=scope, backend=backend,
                         stream=_arrays.framework(x).stream(x, stream), **globals_of(x, **scale))


@_arrays.on_stream
@named
def nvfp4_quantize(a: ArrayLike, a_global_sf: Scalar, sfLayout: SfLayout = SfLayout.layout_128x4,
                   do_shuffle: bool = False, sf_vec_size: int = 16, enable_pdl: Optional[bool] = None, *,
                   per_token_activation: bool = False, method: str = "max", stream: Optional[int] = None,
                   backend: str = "") -> Tuple[Array, ...]:
    """Quantizes a [..., K], float32, float16 or bfloat16.

    a_global_sf  a DIVISOR, 448 · 6 / amax(a): codes times block scales approximate a · a_global_sf.
                A number or [1] float32.
    per_token_activation  a global scale for each row; a_global_sf is then the MULTIPLIER of a row
                whose largest magnitude is 1, 1 / (448 · 6)
    sfLayout    layout of the block scales
    method      'max' is FlashInfer's; 'four_over_six' and 'mse' have smaller errors
    NaN and infinities are no error: quantize() says what becomes of them.
    Returns (codes uint8 [..., K/2], scales uint8): [rows, K/16] if linear, else the padded
    [rows, blocks]. With per_token_activation also float32 [rows], MULTIPLIERS.
    """
    _require_16(sf_vec_size)
    if do_shuffle:
        raise UnsupportedError("do_shuffle = True is for TensorRT-LLM's weights, must be False")
    layout = _layout_of(sfLayout)
    _arrays.given("a_global_sf", a_global_sf)
    source = _arrays.matrix("a", a)
    scope, token_scales = "tensor", ()
    if per_token_activation:
        scope = "vector"
        a_global_sf, *token_scales = _token_scales(a, a_global_sf, stream, backend)
    q = allocate(a, _arrays.shape_of(a), layout=layout, scope=scope)
    _core.quantize_into(source, q._operand(written=True),
                        _options(a, layout, stream, method, backend, scope,
                                divisor=a_global_sf))
    q = finished(q, a)
    scales = q.scales.reshape(-1, q.scales.shape[-1]) if layout == "linear" else q.scales
    return (q.codes, scales, *token_scales)


@_arrays.on_stream
@named
def e2m1_and_ufp8sf_scale_to_float(e2m1_tensor: ArrayLike, ufp8_scale_tensor: ArrayLike,
                                   global_scale_tensor: Optional[Scalar] = None, sf_vec_size: int = 16,
                                   ufp8_type: int = 1, is_sf_swizzled_layout: bool = True,
                                   is_sf_8x4_layout: bool = False, *, dtype: Any = "float32",
                                   stream: Optional[int] = None, backend: str = "") -> Array:
    """Dequantizes codes [..., K/2] to float32.

    global_scale_tensor  a MULTIPLIER, 1 / a_global_sf of nvfp4_quantize; 1 if not given
    is_sf_swizzled_layout  True: 128x4 tiles, or 8x4 with is_sf_8x4_layout; False: row-major
    """
    _require_16(sf_vec_size)
    if ufp8_type != 1:
        raise UnsupportedError(f"ufp8_type = {ufp8_type}, must be 1 (E4M3): 0 is MXFP4")
    shape = _arrays.shape_of(e2m1_tensor)
    if not shape:
        raise ShapeError("e2m1_tensor has no dimensions, must have one or more")
    factor = _global_of(e2m1_tensor, "global_scale_tensor", global_scale_tensor)
    q = QuantizedTensor(e2m1_tensor, ufp8_scale_tensor, factor, (*shape[:-1], shape[-1] * 2),
                        layout=layout_named(is_sf_swizzled_layout, is_sf_8x4_layout))
    return dequantize(q, dtype, stream=stream, backend=backend)


@_arrays.on_stream
@named
def block_scale_interleave(unswizzled_sf: ArrayLike, *, stream: Optional[int] = None) -> Array:
    """Converts row-major block scales [M, K/16], or [experts, M, K/16], uint8 or float8_e4m3fn, to
    128x4 tiles: one dimension, padded with zeros, one expert after the other."""
    kind = _arrays.framework(unswizzled_sf)
    shape = _arrays.shape_of(unswizzled_sf)
    if len(shape) not in (2, 3):
        raise ShapeError(f"unswizzled_sf has shape {list(shape)}, must have 2 or 3 dimensions")
    rows, blocks = shape[-2:]
    experts = shape[0] if len(shape) == 3 else 1
    dtype = _arrays.dtype_of(unswizzled_sf)
    out = kind.empty((experts * _core.scale_bytes("tiled_128x4", rows, blocks),), dtype,
                     unswizzled_sf)
    _core.relayout_scales(
        _arrays.codes_or_scales("unswizzled_sf", unswizzled_sf), "linear",
        _arrays.codes_or_scales("out", out), "tiled_128x4", rows, blocks, experts,
        kind.stream(unswizzled_sf, stream))
    return kind.finish(out)


@_arrays.on_stream
@named
def silu_and_mul_nvfp4_quantize(input: ArrayLike, global_scale: Scalar, sf_vec_size: int = 16,
                                is_sf_swizzled_layout: bool = True, is_sf_8x4_layout: bool = False,
                                enable_pdl: Optional[bool] = None, *, method: str = "max",
                                stream: Optional[int] = None, backend: str = "") -> Tuple[Array, Array]:
    """Quantizes silu(input[..., :K]) · input[..., K:] without rounding it first; input is [..., 2·K].

    global_scale  a DIVISOR, as of nvfp4_quantize: 448 · 6 / amax of the product
    is_sf_8x4_layout  with is_sf_swizzled_layout: tiles of 8x4 instead of 128x4
    Returns (codes uint8 [rows, K/2], scales uint8 as those of nvfp4_quantize); all dimensions before
    the last are rows.
    """
    _require_16(sf_vec_size)
    shape = _arrays.shape_of(input)
    if not shape or shape[-1] % 32:
        raise ShapeError(f"input has shape {list(shape)}, the last must be a multiple of 32", code="NV0401")
    _arrays.given("global_scale", global_scale)
    layout = layout_named(is_sf_swizzled_layout, is_sf_8x4_layout)
    source = _arrays.matrix("input", input)
    q = allocate(input, (math.prod(shape[:-1]), shape[-1] // 2), layout=layout)
    _core.swiglu_quantize_into(source, q._operand(written=True),
                               _options(input, layout, stream, method, backend,
                                        divisor=global_scale))
    q = finished(q, input)
    return q.codes, q.scales


def _float_weight(weight):
    """Returns a weight as FP32, which the library needs. Copies only if needed."""
    _arrays.operand("weight", weight, (*_arrays.FLOATS, "float64"))
    if _arrays.dtype_of(weight) == "float32":
        return weight
    if hasattr(weight, "float"):
        return weight.float()
    return (weight if hasattr(weight, "astype") else np.asarray(weight)).astype("float32")


def _norm_quantize(x, weight, residual, y_fp4, block_scale, global_scale, eps, block_size,
                   scale_format, swizzled, method, stream, backend, **outputs):
    _require_16(block_size)
    if scale_format not in (None, "e4m3"):
        raise UnsupportedError(f"scale_format = {scale_format!r}, must be 'e4m3'")
    layout = layout_named(swizzled)
    source = _arrays.matrix("input", x)
    shape = _arrays.shape_of(x)
    q = allocate(x, shape, layout=layout, flat_scales=swizzled, scale_dtype="float8_e4m3fn"
                 if block_scale is None and _has_float8(x) else "uint8")
    q.codes = q.codes if y_fp4 is None else y_fp4
    q.scales = q.scales if block_scale is None else block_scale
    # The FP32 copy of the weight must live until the work is enqueued.
    weight32 = _float_weight(weight)
    options = _options(x, layout, stream, method, backend,
                       divisor=_given_or_one(global_scale))
    total = None if residual is None else _arrays.matrix("residual", residual, written=True)
    require_apart({"residual": residual, "y_fp4": y_fp4, "block_scale": block_scale, **outputs},
                          {"input": x, "weight": weight})
    _core.rms_norm_quantize_into(source, _arrays.floats("weight", weight32), q._operand(written=True), options,
                                 eps, "f32", total, total)
    codes, scales = q.codes, q.scales
    kind = _arrays.framework(x)
    return (codes if y_fp4 is not None else kind.paired(kind.finish(codes)),
            scales if block_scale is not None else kind.finish(scales))


def _has_float8(x):
    try:
        _arrays.framework(x).empty((0,), "float8_e4m3fn", x)
    except UnsupportedError:
        return False
    return True


def _require_like(x, y_out):
    for what, of in (("shape", _arrays.shape_of), ("dtype", _arrays.dtype_of)):
        if of(y_out) != of(x):
            error = ShapeError if what == "shape" else InvalidValueError
            raise error(f"y_out has {what} {of(y_out)}, must be input's {of(x)}")


@_arrays.on_stream
@named
def rmsnorm_fp4quant(input: ArrayLike, weight: ArrayLike, y_fp4: Optional[Array] = None,
                     block_scale: Optional[Array] = None, global_scale: Optional[Scalar] = None,
                     eps: float = 1e-6, block_size: int = 16, scale_format: Optional[str] = None,
                     is_sf_swizzled_layout: bool = False, enable_pdl: Optional[bool] = None, *,
                     method: str = "max", stream: Optional[int] = None, backend: str = "") -> Tuple[Array, Array]:
    """Quantizes input / rms(input) · weight without rounding it first; input is [..., K], weight [K].

    global_scale  a DIVISOR, as of nvfp4_quantize: 448 · 6 / amax of the normalized values; 1 if
                  not given
    y_fp4, block_scale  outputs, if given
    Returns (codes [..., K/2], scales): float4_e2m1fn_x2 and float8_e4m3fn where the framework has
    them, otherwise uint8; the scales are [..., K/16], or the padded 128x4 tiles in one dimension
    if is_sf_swizzled_layout.
    """
    return _norm_quantize(input, weight, None, y_fp4, block_scale, global_scale, eps, block_size,
                          scale_format, is_sf_swizzled_layout, method, stream, backend)


@_arrays.on_stream
@named
def add_rmsnorm_fp4quant(input: ArrayLike, residual: Array, weight: ArrayLike, y_fp4: Optional[Array] = None,
                         block_scale: Optional[Array] = None, global_scale: Optional[Scalar] = None,
                         eps: float = 1e-6, block_size: int = 16, scale_format: Optional[str] = None,
                         is_sf_swizzled_layout: bool = False, output_both_sf_layouts: bool = False,
                         block_scale_unswizzled: Optional[Array] = None, enable_pdl: Optional[bool] = None,
                         y_out: Optional[Array] = None, *, method: str = "max",
                         stream: Optional[int] = None, backend: str = "") -> Tuple[Array, ...]:
    """Computes residual += input IN PLACE, rounded to its dtype, then rmsnorm_fp4quant of it.

    global_scale  a DIVISOR, as of rmsnorm_fp4quant
    output_both_sf_layouts  the scales are swizzled, and [..., K/16] are a third result,
                  block_scale_unswizzled if given
    y_out         an output, if given, of the shape of input: the normalized values before they are
                  quantized, rounded to its dtype. The framework computes it in a separate pass.
    JAX arrays cannot be changed in place: UnsupportedError.
    """
    if residual is None:
        raise TypeError("residual = None, must be an array")
    if y_out is not None:
        _require_like(input, y_out)
    codes, scales = _norm_quantize(input, weight, residual, y_fp4, block_scale, global_scale, eps,
                                   block_size, scale_format,
                                   is_sf_swizzled_layout or output_both_sf_layouts, method, stream, backend,
                                   y_out=y_out, block_scale_unswizzled=block_scale_unswizzled)
    if y_out is not None:
        total = _float_weight(residual)
        mean = (total * total).mean(axis=-1, keepdims=True)
        y_out[...] = total / (mean + eps) ** 0.5 * _float_weight(weight)
    if not output_both_sf_layouts:
        return codes, scales
    kind, shape = _arrays.framework(input), _arrays.shape_of(input)
    linear = block_scale_unswizzled
    if linear is None:
        linear = kind.empty((*shape[:-1], shape[-1] // 16), _arrays.dtype_of(scales), input)
    _core.relayout_scales(
        _arrays.codes_or_scales("block_scale", scales), "tiled_128x4",
        _arrays.codes_or_scales("block_scale_unswizzled", linear, written=True), "linear",
        math.prod(shape[:-1]), shape[-1] // 16, 1, kind.stream(input, stream))
    return codes, scales, linear


def _backend(name):
    """Returns the backend's name of nvfp4. FlashInfer's default is 'auto'."""
    return "" if name == "auto" else name


def _left_side(a, a_descale, layout):
    rows, half = _arrays.two_dimensions("a", a)
    one = _arrays.framework(a).constant(1.0, 1, a)
    return QuantizedTensor(a, a_descale, one, (rows, 2 * half), layout=layout)


def _rows_of_scales(b_descale, shape):
    """Returns the scales of b as tiles of [N, K/16]. They may be given so, transposed, or in one dimension."""
    given = _arrays.shape_of(b_descale)
    tiles = scale_shape(shape, "rows", 16, "tiled_128x4")
    if given == tiles[::-1] and not (given == tiles and _arrays.is_contiguous(b_descale)):
        return b_descale.T
    if len(given) == 2 and given != tiles:
        raise ShapeError(f"b_descale has shape {list(given)}, must be {list(tiles)} or its transpose")
    return b_descale


@_arrays.on_stream
@named
def mm_fp4(a: ArrayLike, b: Union[ArrayLike, PackedWeights], a_descale: ArrayLike,
           b_descale: Optional[ArrayLike], alpha: Optional[Scalar] = None, out_dtype: Any = "bfloat16",
           out: Optional[Array] = None, block_size: int = 16, use_8x4_sf_layout: bool = False,
           backend: str = "", use_nvfp4: bool = True, enable_pdl: Optional[bool] = None, *,
           workspace: Optional[Array] = None, stream: Optional[int] = None) -> Array:
    """Returns alpha · a · b: exact sums of blocks, FP32 accumulation, one rounding. Runs on the CPU and on GPUs from
    sm_80 on. A call does not wait for the GPU, and a graph can capture it.

    a, b        codes [M, K/2] and [K/2, N], the latter the transpose of contiguous [N, K/2]
                (b_fp4.T); or b of pack_weights, which saves packing it in every call
    a_descale, b_descale  block scales in 128x4 tiles as nvfp4_quantize returns them, b's also
                transposed (b_sf.T; not from JAX if [N, K/16] is square, because JAX arrays have no
                strides to tell); a's in 8x4 tiles with use_8x4_sf_layout
    alpha       a MULTIPLIER, 1 / (a_global_sf · b_global_sf); 1 if not given. The host does not read
                a tensor on the GPU.
    out_dtype   bfloat16 (NumPy: needs ml_dtypes), float16 or float32
    workspace   GPU: uint8 [plan_gemm(...).workspace_bytes], zeros before its first use. Allocated
                if not given.
    """
    _require_16(block_size)
    if not use_nvfp4:
        raise UnsupportedError("use_nvfp4 = False is MXFP4")
    _, half = _arrays.two_dimensions("a", a)
    packed = b
    if not isinstance(b, PackedWeights):
        if _arrays.two_dimensions("b", b)[0] != half:
            raise ShapeError(f"b has shape {list(_arrays.shape_of(b))}, must be [{half}, N]: the "
                             "transpose of [N, K/2]")
        shape = (_arrays.shape_of(b)[1], 2 * half)
        scales = _rows_of_scales(b_descale, shape)
        packed = pack_parts(
            [QuantizedTensor(b.T, scales, _arrays.framework(a).constant(1.0, 1, a), shape,
                             layout="tiled_128x4")], stream=stream)
    left = _left_side(a, a_descale, "tiled_8x4" if use_8x4_sf_layout else "tiled_128x4")
    return gemm(left, packed, out_dtype=out_dtype, out=out, alpha=_given_or_one(alpha),
                backend=_backend(backend), workspace=workspace, stream=stream)


@_arrays.on_stream
@named
def grouped_mm_fp4(a: ArrayLike, b: Union[ArrayLike, PackedWeights], a_descale: ArrayLike,
                   b_descale: Optional[ArrayLike], m_indptr: Union[Sequence[int], ArrayLike],
                   alpha: Optional[Scalar] = None, out: Optional[Array] = None, out_dtype: Any = "bfloat16",
                   block_size: int = 16, *, backend: str = "", workspace: Optional[Array] = None,
                   stream: Optional[int] = None) -> Array:
    """Returns out[s:e] = alpha · a[s:e] · b[g]ᵀ with s, e = m_indptr[g], m_indptr[g + 1]. Runs on the CPU and on GPUs
    from sm_80 on. A call does not wait for the GPU, and a graph can capture it.

    a, b        codes [M, K/2] and [G, N, K/2]; or b of pack_weights(groups=G), which saves packing it
    a_descale   block scales of the whole of a, in 128x4 tiles
    b_descale   block scales of each group, in 128x4 tiles: [G, padded N, padded K/16]
    m_indptr    integers [G + 1], never decreasing, the first 0, the last at most M. The host neither
                reads nor checks int32 that are on the GPU.
    alpha       a MULTIPLIER, 1 / (a_global_sf · b_global_sf), one or one for each group
    workspace   GPU: uint8 [plan_gemm(...).workspace_bytes], zeros before its first use. Allocated
                if not given.
    Rows of no group are 0 in a new result.
    """
    _require_16(block_size)
    kind = _arrays.framework(a)
    _, half = _arrays.two_dimensions("a", a)
    groups = math.prod(_arrays.shape_of(m_indptr)) - 1
    if groups < 1:
        raise InvalidValueError("m_indptr must begin with 0 and have an end for each group")
    packed = b
    if not isinstance(b, PackedWeights):
        b_shape = _arrays.shape_of(b)
        if len(b_shape) != 3 or b_shape[0] != groups:
            raise ShapeError(f"b has shape {list(b_shape)}, must be [{groups}, N, {half}]: m_indptr "
                             f"has {groups} groups")
        n = b_shape[1]
        count = math.prod(_arrays.shape_of(b_descale))
        if count % groups:
            raise ShapeError(f"b_descale has {count} elements, must have as many for each of the "
                             f"{groups} groups")
        scales = b_descale.reshape(groups, -1)
        one = kind.constant(1.0, 1, a)
        packed = pack_parts(
            [QuantizedTensor(b[g], scales[g], one, (n, 2 * half), layout="tiled_128x4")
             for g in range(groups)], groups, stream=stream)
    left = _left_side(a, a_descale, "tiled_128x4")
    alpha = _given_or_one(alpha)
    if kind.is_cuda(a):
        bounds = kind.ints(m_indptr, a)
        return gemm(left, packed, row_ends=bounds[1:], row_starts=bounds[:-1],
                    out_dtype=out_dtype, out=out, alpha=alpha, workspace=workspace, stream=stream)
    ends = _arrays.host_integers("m_indptr", m_indptr)
    if ends[0] != 0:
        raise InvalidValueError("m_indptr must begin with 0 and have an end for each group")
    return gemm(left, packed, row_ends=ends[1:], out_dtype=out_dtype, out=out, alpha=alpha,
                backend=_backend(backend))
