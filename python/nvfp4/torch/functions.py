"""PyTorch custom operators, torch.ops.nvfp4.*: opaque to torch.compile, which sees their shapes.

They take and return tensors on the CPU or on CUDA, and compute
what the functions of the same names in nvfp4 do. On CUDA they run on the current stream, and a graph
can capture them. mm_fp4 and grouped_mm_fp4 pack the weights in every call; gemm and grouped_gemm
take weights of pack_weights.
"""

import math
from typing import Optional, Tuple

import torch
from torch import Tensor

import nvfp4 as _nvfp4
from .._core import packed_bytes as _packed_bytes
from .._flashinfer import layout_named
from .._quantize import scale_shape as _scale_shape


def _codes(x, shape):
    return x.new_empty((*shape[:-1], shape[-1] // 2), dtype=torch.uint8)


def _scales(x, shape, layout, dtype=torch.uint8):
    if layout == "linear":
        return x.new_empty((*shape[:-1], shape[-1] // 16), dtype=dtype)
    rows, blocks = math.prod(shape[:-1]), shape[-1] // 16
    tile = {"tiled_128x4": 128, "tiled_8x4": 8}[layout]
    return x.new_empty((-(-rows // tile) * tile, -(-blocks // 4) * 4), dtype=dtype)


def _normalized(x, swizzled):
    """Returns uninitialized outputs of the RMSNorm functions, for fake kernels. Swizzled scales have one dimension."""
    scales = _scales(x, x.shape, layout_named(swizzled), torch.float8_e4m3fn)
    return _codes(x, x.shape), scales.reshape(-1) if swizzled else scales


@torch.library.custom_op("nvfp4::quantize", mutates_args=())
def quantize(x: Tensor, method: str = "mse", global_scale: Optional[Tensor] = None,
             global_divisor: Optional[Tensor] = None, layout: str = "linear",
             scope: str = "tensor") -> Tuple[Tensor, Tensor, Tensor]:
    """Returns (codes, scales, global_scale) of nvfp4.quantize; global_scale is a MULTIPLIER."""
    q = _nvfp4.quantize(x, method, global_scale=global_scale, global_divisor=global_divisor,
                        layout=layout, scope=scope)
    return q.codes, q.scales, q.global_scale


@quantize.register_fake
def _(x, method="mse", global_scale=None, global_divisor=None, layout="linear", scope="tensor"):
    count = 1 if scope == "tensor" else math.prod(x.shape[:-1])
    if layout in ("linear", "tiled_128x4", "tiled_8x4"):
        scales = _scales(x, x.shape, layout)
    else:
        scales = x.new_empty(_scale_shape(x.shape, "rows", 16, layout), dtype=torch.uint8)
    return _codes(x, x.shape), scales, x.new_empty((count,), dtype=torch.float32)


@torch.library.custom_op("nvfp4::dequantize", mutates_args=())
def dequantize(codes: Tensor, scales: Tensor, global_scale: Tensor, dtype: torch.dtype,
               layout: str = "linear") -> Tensor:
    """Calls nvfp4.dequantize for [..., K/2] codes; global_scale is a MULTIPLIER, [1] or one for each row."""
    shape = (*codes.shape[:-1], codes.shape[-1] * 2)
    scope = "tensor" if global_scale.numel() == 1 else "vector"
    q = _nvfp4.QuantizedTensor(codes, scales, global_scale, shape, layout=layout, scope=scope)
    return _nvfp4.dequantize(q, dtype)


@dequantize.register_fake
def _(codes, scales, global_scale, dtype, layout="linear"):
    return codes.new_empty((*codes.shape[:-1], codes.shape[-1] * 2), dtype=dtype)


@torch.library.custom_op("nvfp4::nvfp4_quantize", mutates_args=())
def nvfp4_quantize(a: Tensor, a_global_sf: Tensor, sfLayout: int = 0,
                   method: str = "max") -> Tuple[Tensor, Tensor]:
    """Calls nvfp4.nvfp4_quantize; a_global_sf is a DIVISOR, sfLayout the value of an SfLayout."""
    return _nvfp4.nvfp4_quantize(a, a_global_sf, sfLayout, method=method)


@nvfp4_quantize.register_fake
def _(a, a_global_sf, sfLayout=0, method="max"):
    layout = ("tiled_128x4", "tiled_8x4", "linear")[sfLayout]
    return _codes(a, a.shape), _scales(a, (math.prod(a.shape[:-1]), a.shape[-1]), layout)


@torch.library.custom_op("nvfp4::e2m1_and_ufp8sf_scale_to_float", mutates_args=())
def e2m1_and_ufp8sf_scale_to_float(e2m1_tensor: Tensor, ufp8_scale_tensor: Tensor,
                                   global_scale_tensor: Optional[Tensor] = None,
                                   is_sf_swizzled_layout: bool = True,
                                   is_sf_8x4_layout: bool = False) -> Tensor:
    """Calls nvfp4.e2m1_and_ufp8sf_scale_to_float; global_scale_tensor is a MULTIPLIER."""
    return _nvfp4.e2m1_and_ufp8sf_scale_to_float(
        e2m1_tensor, ufp8_scale_tensor, global_scale_tensor,
        is_sf_swizzled_layout=is_sf_swizzled_layout, is_sf_8x4_layout=is_sf_8x4_layout)


@e2m1_and_ufp8sf_scale_to_float.register_fake
def _(e2m1_tensor, ufp8_scale_tensor, global_scale_tensor=None, is_sf_swizzled_layout=True,
      is_sf_8x4_layout=False):
    shape = (*e2m1_tensor.shape[:-1], e2m1_tensor.shape[-1] * 2)
    return e2m1_tensor.new_empty(shape, dtype=torch.float32)


@torch.library.custom_op("nvfp4::block_scale_interleave", mutates_args=())
def block_scale_interleave(unswizzled_sf: Tensor) -> Tensor:
    """Calls nvfp4.block_scale_interleave."""
    return _nvfp4.block_scale_interleave(unswizzled_sf)


@block_scale_interleave.register_fake
def _(unswizzled_sf):
    rows, blocks = unswizzled_sf.shape[-2:]
    experts = unswizzled_sf.shape[0] if unswizzled_sf.dim() == 3 else 1
    return unswizzled_sf.new_empty((experts * (-(-rows // 128) * 128) * (-(-blocks // 4) * 4),))


@torch.library.custom_op("nvfp4::silu_and_mul_nvfp4_quantize", mutates_args=())
def silu_and_mul_nvfp4_quantize(input: Tensor, global_scale: Tensor,
                                is_sf_swizzled_layout: bool = True, is_sf_8x4_layout: bool = False,
                                method: str = "max") -> Tuple[Tensor, Tensor]:
    """Calls nvfp4.silu_and_mul_nvfp4_quantize; global_scale is a DIVISOR."""
    return _nvfp4.silu_and_mul_nvfp4_quantize(
        input, global_scale, is_sf_swizzled_layout=is_sf_swizzled_layout,
        is_sf_8x4_layout=is_sf_8x4_layout, method=method)


@silu_and_mul_nvfp4_quantize.register_fake
def _(input, global_scale, is_sf_swizzled_layout=True, is_sf_8x4_layout=False, method="max"):
    shape = (math.prod(input.shape[:-1]), input.shape[-1] // 2)
    layout = layout_named(is_sf_swizzled_layout, is_sf_8x4_layout)
    return _codes(input, shape), _scales(input, shape, layout)


@torch.library.custom_op("nvfp4::rmsnorm_fp4quant", mutates_args=())
def rmsnorm_fp4quant(input: Tensor, weight: Tensor, global_scale: Optional[Tensor] = None,
                     eps: float = 1e-6, is_sf_swizzled_layout: bool = False,
                     method: str = "max") -> Tuple[Tensor, Tensor]:
    """Calls nvfp4.rmsnorm_fp4quant and returns codes as uint8; global_scale is a DIVISOR."""
    codes, scales = _nvfp4.rmsnorm_fp4quant(
        input, weight, global_scale=global_scale, eps=eps,
        is_sf_swizzled_layout=is_sf_swizzled_layout, method=method)
    return codes.view(torch.uint8), scales


@rmsnorm_fp4quant.register_fake
def _(input, weight, global_scale=None, eps=1e-6, is_sf_swizzled_layout=False, method="max"):
    return _normalized(input, is_sf_swizzled_layout)


@torch.library.custom_op("nvfp4::add_rmsnorm_fp4quant", mutates_args=("residual",))
def add_rmsnorm_fp4quant(input: Tensor, residual: Tensor, weight: Tensor,
                         global_scale: Optional[Tensor] = None, eps: float = 1e-6,
                         is_sf_swizzled_layout: bool = False,
                         method: str = "max") -> Tuple[Tensor, Tensor]:
    """Calls nvfp4.add_rmsnorm_fp4quant, which changes residual in place; global_scale is a DIVISOR."""
    codes, scales = _nvfp4.add_rmsnorm_fp4quant(
        input, residual, weight, global_scale=global_scale, eps=eps,
        is_sf_swizzled_layout=is_sf_swizzled_layout, method=method)
    return codes.view(torch.uint8), scales


@add_rmsnorm_fp4quant.register_fake
def _(input, residual, weight, global_scale=None, eps=1e-6, is_sf_swizzled_layout=False,
      method="max"):
    return _normalized(input, is_sf_swizzled_layout)


@torch.library.custom_op("nvfp4::mm_fp4", mutates_args=())
def mm_fp4(a: Tensor, b: Tensor, a_descale: Tensor, b_descale: Tensor,
           alpha: Optional[Tensor] = None, out_dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Calls nvfp4.mm_fp4 with b [K/2, N] and its scales transposed; alpha is a MULTIPLIER."""
    # The compiler may change strides. A copy is made only if they are wrong.
    return _nvfp4.mm_fp4(a, b.T.contiguous().T, a_descale, b_descale.T.contiguous().T, alpha,
                         out_dtype)


@mm_fp4.register_fake
def _(a, b, a_descale, b_descale, alpha=None, out_dtype=torch.bfloat16):
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


@torch.library.custom_op("nvfp4::grouped_mm_fp4", mutates_args=())
def grouped_mm_fp4(a: Tensor, b: Tensor, a_descale: Tensor, b_descale: Tensor, m_indptr: Tensor,
                   alpha: Optional[Tensor] = None,
                   out_dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Calls nvfp4.grouped_mm_fp4; alpha is a MULTIPLIER, [1] or one for each group."""
    return _nvfp4.grouped_mm_fp4(a, b, a_descale, b_descale, m_indptr, alpha, None, out_dtype)


@grouped_mm_fp4.register_fake
def _(a, b, a_descale, b_descale, m_indptr, alpha=None, out_dtype=torch.bfloat16):
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


@torch.library.custom_op("nvfp4::pack_weights", mutates_args=())
def pack_weights(codes: Tensor, scales: Tensor, global_scale: Tensor,
                 layout: str = "linear") -> Tensor:
    """Returns PackedWeights.data of weights [N, K/2], or [G, N, K/2] with the scales of all groups in order.
    global_scale is a MULTIPLIER, [1] or [G], or one for each row."""
    groups = codes.shape[0] if codes.dim() == 3 else 1
    rows, cols = codes.shape[-2], 2 * codes.shape[-1]
    per_row = global_scale.numel() not in (1, groups)
    parts = zip(codes.reshape(groups, rows, -1), scales.reshape(groups, -1),
                global_scale.reshape(-1).expand(max(groups, global_scale.numel()))
                .contiguous().reshape(groups, -1))
    data = _nvfp4.pack_weights(
        *(_nvfp4.QuantizedTensor(c, s, g, (rows, cols), layout=layout,
                                 scope="vector" if per_row else "tensor") for c, s, g in parts),
        groups=groups).data
    return data if isinstance(data, Tensor) else torch.from_numpy(data.copy())


@pack_weights.register_fake
def _(codes, scales, global_scale, layout="linear"):
    groups = codes.shape[0] if codes.dim() == 3 else 1
    rows, cols = codes.shape[-2], 2 * codes.shape[-1]
    scope = "tensor" if global_scale.numel() in (1, groups) else "vector"
    return codes.new_empty((_packed_bytes(groups, rows, cols, scope, codes.device.type == "cuda"),),
                           dtype=torch.uint8)


@torch.library.custom_op("nvfp4::gemm", mutates_args=())
def gemm(x: Tensor, weights: Tensor, rows: int, alpha: Optional[Tensor] = None,
         bias: Optional[Tensor] = None, out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """Calls nvfp4.gemm for x [..., K] and packed weights [rows, K]."""
    w = _nvfp4.PackedWeights(weights, rows, x.shape[-1])
    return _nvfp4.gemm(x.contiguous(), w, alpha=1.0 if alpha is None else alpha, bias=bias,
                       out_dtype=out_dtype)


@gemm.register_fake
def _(x, weights, rows, alpha=None, bias=None, out_dtype=None):
    return x.new_empty((*x.shape[:-1], rows), dtype=out_dtype or x.dtype)


@torch.library.custom_op("nvfp4::grouped_gemm", mutates_args=())
def grouped_gemm(x: Tensor, weights: Tensor, rows: int, row_ends: Tensor,
                 alpha: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                 out_dtype: Optional[torch.dtype] = None) -> Tensor:
    """Calls nvfp4.gemm for the groups of rows of x [M, K] that end at row_ends, int32 [G]. On a GPU the host does not
    read row_ends."""
    w = _nvfp4.PackedWeights(weights, rows, x.shape[-1], row_ends.numel())
    return _nvfp4.gemm(x.contiguous(), w, row_ends=row_ends, alpha=1.0 if alpha is None else alpha,
                       bias=bias, out_dtype=out_dtype)


@grouped_gemm.register_fake
def _(x, weights, rows, row_ends, alpha=None, bias=None, out_dtype=None):
    return x.new_empty((x.shape[0], rows), dtype=out_dtype or x.dtype)
