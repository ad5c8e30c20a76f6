"""NVFP4: quantize tensors and checkpoints, dequantize, multiply.

x ≈ e2m1 · scale · global_scale: block scales and global scales are MULTIPLIERS. Functions with
FlashInfer's names keep FlashInfer's conventions; each docstring says whether its global scale is a
MULTIPLIER or a DIVISOR.
"""

from . import _core
from ._checkpoint import (compare, convert, inspect, quantize_checkpoint, repair, sample, verify)
from ._core import (backends, conversion_targets, devices, method_names, set_threads, threads)
from ._errors import (DeviceError, Error, FormatError, InvalidValueError, IoError, ShapeError,
                      UnsupportedError)
from ._flashinfer import (SfLayout, add_rmsnorm_fp4quant, block_scale_interleave,
                          e2m1_and_ufp8sf_scale_to_float, grouped_mm_fp4, mm_fp4, nvfp4_quantize,
                          rmsnorm_fp4quant, silu_and_mul_nvfp4_quantize)
from ._gemm import GemmPlan, PackedWeights, gemm, pack_weights, plan_gemm, unpack_weights
from ._quantize import (QuantizedTensor, amax, dequantize, global_scales, quantization_error,
                        quantize, relayout_scales)

__version__ = _core.version()

__all__ = [
    "DeviceError", "Error", "FormatError", "GemmPlan", "InvalidValueError", "IoError",
    "PackedWeights", "QuantizedTensor", "SfLayout", "ShapeError", "UnsupportedError",
    "add_rmsnorm_fp4quant", "amax", "backends", "block_scale_interleave", "compare",
    "conversion_targets", "convert", "dequantize", "devices", "e2m1_and_ufp8sf_scale_to_float",
    "gemm", "global_scales", "grouped_mm_fp4", "inspect", "method_names", "mm_fp4", "nvfp4_quantize",
    "pack_weights", "plan_gemm", "quantization_error", "quantize", "quantize_checkpoint",
    "relayout_scales", "repair", "rmsnorm_fp4quant", "sample", "set_threads",
    "silu_and_mul_nvfp4_quantize", "threads", "unpack_weights", "verify",
]
