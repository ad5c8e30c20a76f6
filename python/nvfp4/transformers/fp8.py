"""A linear layer whose weight is FP8, for checkpoints that mix NVFP4 and FP8."""

from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn

from .._errors import UnsupportedError
from ..torch.modules import PackedModule
from ..torch.weights import positive

E4M3_MAX = 448.0
BLOCK = 128  #: rows and columns of a weight that share a scale


@dataclass(frozen=True)
class Fp8Weight:
    """An E4M3 weight of the checkpoint, [rows, cols], and its scales: "tensor", "row", "block" or "mx"."""

    rows: int
    cols: int
    kind: str
    scale_shape: tuple
    input_scale_shape: Optional[tuple]  #: None: not stored


def kind_of_scale(dtype, shape, rows, cols):
    """Returns how scales of a weight [rows, cols] lie, by their dtype and shape, or None for no known way."""
    if dtype == "U8":
        return "mx" if shape == (rows, cols // 32) and cols % 32 == 0 else None
    if dtype not in ("F32", "BF16", "F16"):
        return None
    if shape in ((), (1,), (1, 1)):
        return "tensor"
    if shape in ((rows,), (rows, 1)):
        return "row"
    return "block" if shape == (-(-rows // BLOCK), -(-cols // BLOCK)) else None


def _decoded(weight, scale, kind, dtype):
    """Returns the weight [N, K] times its scales, rounded to `dtype`."""
    rows, cols = weight.shape
    if kind == "mx":
        factors = torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
    elif kind == "block":
        factors = scale.float().repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :cols]
    else:
        factors = scale.float().reshape(-1, 1)
    return (weight.float() * factors).to(dtype)


def _multiplies_fp8(device):
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


class Fp8Linear(PackedModule, nn.Linear):
    """y = x · Wᵀ + bias, in the dtype of x.

    With a scale for the tensor or for each row of W, x becomes E4M3 with the stored input scale, or with one for each
    row of x. GPUs from sm_89 on then multiply E4M3. Elsewhere, and with other scales, the weight is dequantized once:
    three bytes for each element.
    """

    def __init__(self, weight, bias, dtype, checkpoint_name, device="meta"):
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.rows, weight.cols
        self.kind, self.dtype, self.checkpoint_name = weight.kind, dtype, checkpoint_name
        scale_type = torch.uint8 if weight.kind == "mx" else torch.float32
        self.register_buffer("weight", torch.empty(weight.rows, weight.cols, dtype=torch.float8_e4m3fn, device=device))
        self.register_buffer("weight_scale", torch.empty(weight.scale_shape, dtype=scale_type, device=device))
        if weight.input_scale_shape is not None:
            self.register_buffer("input_scale", torch.empty(weight.input_scale_shape, dtype=torch.float32, device=device))
        self.register_parameter("bias", bias)
        self.register_buffer("decoded", None, persistent=False)
        self._is_packed = False
        self._is_hf_initialized = True

    @property
    def is_packed(self):
        return self._is_packed

    @property
    def quantizes_input(self):
        return self.kind in ("tensor", "row")

    @property
    def uses_fp8(self):
        """Returns whether the device multiplies the codes themselves."""
        return (self.quantizes_input and _multiplies_fp8(self.weight.device) and self.out_features % 16 == 0
                and self.in_features % 16 == 0)

    def pack(self):
        for name in ("weight_scale", "input_scale"):
            if name in self._buffers and (scale := self._buffers[name]).is_floating_point():  # MXFP8 has bytes
                positive(f"{self.checkpoint_name}.{name}", scale)
        self.decoded = None if self.uses_fp8 else _decoded(self.weight, self.weight_scale, self.kind, self.dtype)
        self._is_packed, self._moving = True, False

    def unpack(self):
        self.decoded, self._is_packed = None, False

    def _plain(self):
        return {}

    def _kept_dtypes(self):
        return "weight", "weight_scale", "input_scale"

    def _codes(self, x):
        """Returns x [M, K] in E4M3, and its scales: [] or [M, 1]."""
        if "input_scale" in self._buffers:
            scale = self.input_scale
        else:
            scale = x.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX
        return (x.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale

    def forward(self, x):
        if not self.quantizes_input:
            return nn.functional.linear(x, self.decoded.to(x.dtype), self.bias)
        codes, scale = self._codes(x.reshape(-1, self.in_features))
        if self.decoded is not None:
            rounded = (codes.float() * scale).to(x.dtype)
            return nn.functional.linear(rounded.view(x.shape), self.decoded.to(x.dtype), self.bias)
        rows = codes.shape[0]
        by_row = self.kind == "row" or scale.numel() > 1
        of_x = scale.expand(rows, 1).contiguous() if by_row else scale.reshape(())
        of_w = self.weight_scale.reshape(1, -1).expand(1, self.out_features).contiguous() if by_row else (
            self.weight_scale.reshape(()))
        y = torch._scaled_mm(codes, self.weight.t(), of_x, of_w, out_dtype=torch.bfloat16 if by_row else x.dtype)
        y = y.to(x.dtype) if self.bias is None else y.to(x.dtype) + self.bias
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, FP8"


def fp8_weight(tensor, scale, input_scale):
    """Returns the Fp8Weight of a tensor of the checkpoint and the tensors beside it. Raises UnsupportedError."""
    shape = tuple(tensor.shape)
    kind = len(shape) == 2 and scale is not None and kind_of_scale(scale.dtype, tuple(scale.shape), *shape)
    if not kind:
        beside = "without a 'weight_scale'" if scale is None else f"beside scales {scale.kind}"
        raise UnsupportedError(f"{tensor}: {tensor.kind} {beside}, must be FP8 [N, K] with one scale, one for each row or "
                               "128 × 128 block, or MXFP8")
    if input_scale is not None and (input_scale.dtype != "F32" or tuple(input_scale.shape) not in ((), (1,))):
        raise UnsupportedError(f"{input_scale}: {input_scale.kind}, the input scale must be F32 with 1 element(s)")
    return Fp8Weight(*shape, kind, tuple(scale.shape),
                     None if input_scale is None else tuple(input_scale.shape))
