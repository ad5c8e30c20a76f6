"""torch.ops.nvfp4.moe, the inference of a layer of experts with SwiGLU. On a GPU the host does not read the routing
and all memory is PyTorch's, so that CUDA graphs capture it."""

import math
from typing import Optional

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from . import _core, _gemm
from ._errors import ShapeError, UnsupportedError
from ._torch_layers import (KEEP, MULTIPLY, _library, as_array, check_mode, follow_torch_threads, stream_of,
                            workspace)

_library.define("moe(Tensor x, Tensor gate_up, Tensor down, Tensor ids, Tensor weights, int intermediate, "
                "int experts, Tensor? input_scale=None, Tensor? down_scale=None, int input_mode=0, "
                "float? limit=None, bool fused=False) -> Tensor")


def fuses(device, intermediate, mode):
    """Returns whether the GEMM of gate and up can end in SwiGLU. gate_up is then packed with gate_up=0."""
    return device.type == "cuda" and intermediate % 16 == 0 and mode in (KEEP, MULTIPLY)


class _Experts:
    """The layer for the tensors of one gate_up, and the memory that its calls need."""

    def __init__(self, x, gate_up, down, intermediate, experts, input_scale, down_scale, mode, limit, fused):
        self.key = _key(x, (gate_up, down, input_scale, down_scale), mode, limit, fused)
        hidden = x.shape[-1]
        packed = (_gemm.PackedWeights(gate_up.detach(), 2 * intermediate, hidden, experts, gate_up=0 if fused else None),
                  _gemm.PackedWeights(down.detach(), hidden, intermediate, experts))
        scaled = mode == MULTIPLY
        self.layer = _core.Moe(*(w._weights for w in packed), mode != KEEP, input_scale.item() if scaled else None,
                               down_scale.tolist() if scaled else [],
                               math.inf if limit is None else limit, as_array(x))
        self.sizes = {}

    def sizes_for(self, x, top_k):
        key = x.shape[0], top_k
        if key not in self.sizes:
            if len(self.sizes) >= 4096:
                self.sizes.clear()
            self.sizes[key] = self.layer.memory(as_array(x), top_k)
        return self.sizes[key]


def _key(x, tensors, *options):
    return x.dtype, *(None if t is None else t.data_ptr() for t in tensors), *options


_seen = WeakTensorKeyDictionary()


def moe(x: Tensor, gate_up: Tensor, down: Tensor, ids: Tensor, weights: Tensor, intermediate: int, experts: int,
        input_scale: Optional[Tensor] = None, down_scale: Optional[Tensor] = None, input_mode: int = KEEP,
        limit: Optional[float] = None, fused: bool = False) -> Tensor:
    """Returns y [T, H] = Σ weights[t, k] · down(SwiGLU(gate_up(x))) of the experts ids [T, top_k], in the dtype of x.

    gate_up, down  PackedWeights.data of [E, 2·I, H], gate above up, and [E, H, I]; with `fused`, gate_up is packed
                   with gate_up=0
    ids            of any integer type; one outside of [0, E) adds nothing
    input_scale, down_scale  MULTIPLIERS [1] and [E], for input_mode = MULTIPLY
    limit          gate is clamped to <= limit, up to [-limit, limit]
    """
    check_mode(input_scale, input_mode)
    if weights.device != x.device or gate_up.device != x.device:
        raise UnsupportedError(f"x is on {x.device}, routing on {weights.device}, weights are packed for {gate_up.device}")
    if x.dim() != 2 or ids.shape != weights.shape or ids.dim() != 2 or ids.shape[0] != x.shape[0]:
        raise ShapeError(f"x has shape {list(x.shape)}, ids {list(ids.shape)} and weights {list(weights.shape)}, must be "
                         "[T, H], [T, top_k] and [T, top_k]")
    x, ids, weights = x.contiguous(), ids.to(torch.int32).contiguous(), weights.float().contiguous()
    out = torch.empty_like(x)
    if not x.numel():
        return out
    known = _seen.get(gate_up)
    if known is None or known.key != _key(x, (gate_up, down, input_scale, down_scale), input_mode, limit, fused):
        known = _seen[gate_up] = _Experts(x, gate_up, down, intermediate, experts, input_scale, down_scale, input_mode,
                                          limit, fused)
    memory = space = None
    if x.is_cuda:
        rows, zeros = known.sizes_for(x, ids.shape[1])
        memory = torch.empty(rows, dtype=torch.uint8, device=x.device)
        space = workspace(zeros, x.device)
    else:
        follow_torch_threads()
        here = (ids >= 0) & (ids < experts)
        ids, weights = torch.where(here, ids, 0), weights * here
    known.layer.run(as_array(x), as_array(ids), as_array(weights), ids.shape[1], as_array(out), as_array(memory),
                    as_array(space), stream_of(x))
    return out


for _key_of_dispatch in ("CPU", "CUDA"):
    _library.impl("moe", moe, _key_of_dispatch)


@torch.library.register_fake("nvfp4::moe", lib=_library)
def _(x, gate_up, down, ids, weights, intermediate, experts, input_scale=None, down_scale=None, input_mode=KEEP,
      limit=None, fused=False):
    return torch.empty_like(x)
