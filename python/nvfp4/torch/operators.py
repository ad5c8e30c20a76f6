"""PyTorch operators of the layers: torch.ops.nvfp4.linear, grouped_linear, routed_linear, with a gradient to x, and
moe, the inference of a layer of experts.

Weights are the bytes of PackedWeights. torch.library.Library defines the operators: a call takes a tenth
of the time of a custom_op.
"""

import ctypes
import enum
import functools
import math
import os
from typing import Optional

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .. import _arrays, _core, _gemm
from .._errors import InvalidValueError, ShapeError, UnsupportedError
from .._quantize import QuantizedTensor, dequantize, quantize

_library = torch.library.Library("nvfp4", "FRAGMENT")


class InputMode(enum.IntEnum):
    """The quantization of a layer's input x."""

    NONE = 0  #: x stays as it is (W4A16)
    DYNAMIC_PER_ROW = 1  #: with a global scale that is measured for each row
    STATIC = 2  #: with `input_scale`, a MULTIPLIER of one element or one for each row


_MODES = frozenset(map(int, InputMode))
_INPUT = "Tensor? input_scale=None, int input_mode=0"
_library.define(f"linear(Tensor x, Tensor weights, int rows, Tensor? bias=None, {_INPUT}, "
                "str arithmetic='exact') -> Tensor")
_library.define("routed_linear(Tensor x, Tensor weights, int rows, int groups, Tensor expert_ids, "
                f"{_INPUT}) -> Tensor")
_library.define("grouped_linear(Tensor x, Tensor weights, int rows, Tensor row_ends, "
                f"{_INPUT}) -> Tensor")
_library.define("input_gradient(Tensor gradient, Tensor weights, int rows, int cols, int groups, "
                "Tensor? row_ends=None, Tensor? expert_ids=None) -> Tensor")


def workspace(size, device):
    """Returns `size` bytes of memory for operands that a GEMM stages, or None for none. Without max_workspace_bytes no
    kernel needs zeros in it."""
    return torch.empty(size, dtype=torch.uint8, device=device) if size else None


def pack_bytes(parts, groups=1, gate_up=None):
    """Returns the bytes of packed weights. The parts (codes, scales, multiplier [1], name) of each of `groups` groups
    are stacked along N. With gate_up=0 a GEMM may end in SwiGLU. Raises InvalidValueError, which names the part, if
    scales are invalid."""
    weights = [QuantizedTensor(codes, scales.view(torch.uint8), multiplier,
                               (codes.shape[0], 2 * codes.shape[1]))
               for codes, scales, multiplier, _ in parts]
    try:
        packed = _gemm.pack_weights(*weights, groups=groups, gate_up=gate_up)
    except InvalidValueError as wrong:
        raise InvalidValueError(f"{', '.join(name for *_, name in parts[:3])}: {wrong}") from None
    return packed.data if isinstance(packed.data, Tensor) else torch.from_numpy(packed.data.copy())


_threads = None
_forked = False


def _note_fork():
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def follow_torch_threads():
    """Applies torch.set_num_threads and OMP_NUM_THREADS to the kernels, unless NVFP4_THREADS is set, and runs them
    on PyTorch's own threads: these spin while they wait for work, which would keep other threads from the CPUs."""
    global _threads
    count = torch.get_num_threads()
    if count != _threads:
        _threads = count
        if not os.environ.get("NVFP4_THREADS"):
            _core.set_threads(count)
            _core.set_parallel_region(0 if _forked else _gomp_parallel())  # a forked child has no threads of libgomp


def _gomp_parallel():
    """Returns the address of GOMP_parallel in PyTorch's own libgomp, or 0."""
    folder = os.path.realpath(os.path.dirname(torch.__file__))
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            files = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if "libgomp" in line}
        (file,) = (f for f in files if f.startswith((folder + os.sep, folder + ".libs" + os.sep)))
        return ctypes.cast(ctypes.CDLL(file).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, ValueError, AttributeError):  # another system or another OpenMP
        return 0


def _check_mode(scale, mode):
    if mode not in _MODES:
        values = ", ".join(f"{int(each)} ({each.name})" for each in InputMode)
        raise InvalidValueError(f"input_mode = {mode}, must be one of {values}")
    if mode == InputMode.STATIC and scale is None:
        raise InvalidValueError(f"input_mode = {int(mode)} without input_scale, must come with it")


def _input(x, scale, mode):
    """Returns x [M, K] in the form that the GEMM takes."""
    if mode == InputMode.NONE:
        return as_array(x)
    scope = "vector" if mode == InputMode.DYNAMIC_PER_ROW or scale.numel() > 1 else "tensor"
    return quantize(x, "max", scope=scope, global_scale=None if mode == InputMode.DYNAMIC_PER_ROW else scale)._operand()


_FLOATS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


@functools.cache
def _multiplies_fp4(device):
    return torch.cuda.get_device_capability(device) >= (10, 0)


def _is_rounded(x, scale, mode):
    """Reports whether the GEMM multiplies x in 16 bits, after one kernel has rounded it to NVFP4."""
    return (mode == InputMode.STATIC and scale.numel() == 1 and x.is_cuda and x.dtype in _FLOATS
            and not _multiplies_fp4(x.device.index))


def _rounded(x, scale):
    """Returns codes · block scales of x [M, K], which are exact in BF16. The GEMM multiplies by the global scale."""
    values = torch.empty_like(x, dtype=torch.bfloat16)
    if values.numel():
        _core.quantize_values_into(x.data_ptr(), _FLOATS[x.dtype], *x.shape, scale.data_ptr(), values.data_ptr(),
                                   x.device.index, stream_of(x))
    return values


def _address(x):
    return 0 if x is None else x.data_ptr()


def stream_of(x):
    """Returns the handle of PyTorch's current stream on the device of x; 0 on the CPU."""
    return torch._C._cuda_getCurrentRawStream(x.device.index) if x.is_cuda else 0


def as_array(x):
    """Returns a contiguous tensor in the form that the extension module takes."""
    return None if x is None else _arrays.framework(x).view(x)[0]


def packed_weights(data, rows, cols, groups):
    """Returns PackedWeights of bytes, which modules hold as int8."""
    return _gemm.PackedWeights(data.view(torch.uint8) if data.dtype == torch.int8 else data, rows, cols, groups)


class _Weights:
    """Packed weights in a tensor, and the plans that were made for them."""

    def __init__(self, tensor, rows, cols, groups):
        self.sizes, self.pointer = (rows, cols, groups), tensor.data_ptr()
        self.packed = packed_weights(tensor.detach(), rows, cols, groups)
        self._plans = {}

    def plan(self, count, x, form, quantized, top_k, arithmetic, out_dtype):
        """Returns the plan for `count` rows of x. `top_k`: experts that share each row."""
        shared = form == "routed" and x.shape[0] != count
        key = count, x.dtype, form, quantized, top_k, shared, arithmetic, out_dtype
        if key not in self._plans:
            if len(self._plans) >= 256:
                self._plans.clear()
            self._plans[key] = _gemm.plan_gemm(
                self.packed, count, x_dtype="nvfp4" if quantized else x.dtype, out_dtype=out_dtype,
                form=form, top_k=top_k, shared_x=shared, arithmetic=arithmetic)
        return self._plans[key]


_seen = WeakTensorKeyDictionary()


def _weights_in(tensor, rows, cols, groups):
    known = _seen.get(tensor)
    if known is None or known.sizes != (rows, cols, groups) or known.pointer != tensor.data_ptr():
        known = _seen[tensor] = _Weights(tensor, rows, cols, groups)
    return known


def _multiply(x, weights, rows, scale, mode, groups=1, bias=None, row_ends=None, expert_ids=None, arithmetic="exact"):
    _check_mode(scale, mode)
    if x.device.type == "cpu":
        follow_torch_threads()
    if weights.device != x.device:
        raise UnsupportedError(f"x is on {x.device}, and the weights are packed for {weights.device}")
    x = x.contiguous()
    count = x.shape[0] if expert_ids is None else expert_ids.numel()
    form, top_k = "dense" if row_ends is None else "grouped", 0
    if expert_ids is not None:
        form, top_k = "routed", expert_ids.shape[1]
        expert_ids = expert_ids.to(torch.int32).contiguous()
    out, alpha = (x.new_zeros if form == "grouped" else x.new_empty)((count, rows)), None
    if form == "dense" and arithmetic == "exact" and _is_rounded(x, scale, mode):
        alpha = scale.to(x.device, torch.float32).reshape(1)
        x, mode = _rounded(x, alpha), InputMode.NONE
    if count:
        known = _weights_in(weights, rows, x.shape[-1], groups)
        plan = known.plan(count, x, form, mode != InputMode.NONE, top_k, arithmetic, out.dtype)
        space = workspace(plan.workspace_bytes, x.device)
        bias = None if bias is None else bias.float().contiguous()
        if (form == "dense" and x.is_cuda and mode == InputMode.NONE
                and (bias is None or bias.shape == (rows,) and bias.device == x.device)):
            _core.dense_gemm(plan, known.packed._weights, count, x.data_ptr(), out.data_ptr(), _address(alpha),
                             _address(bias), _address(space), stream_of(x))
        else:
            _core.gemm(plan, _input(x, scale, mode), known.packed._weights, as_array(out), 1.0, as_array(alpha),
                       as_array(bias), as_array(row_ends), None, as_array(space), stream_of(x), as_array(expert_ids))
    return out


def linear(x: Tensor, weights: Tensor, rows: int, bias: Optional[Tensor] = None,
           input_scale: Optional[Tensor] = None, input_mode: int = InputMode.NONE, arithmetic: str = "exact") -> Tensor:
    """Returns y [..., rows] = x · Wᵀ + bias in the dtype of x. `arithmetic` is that of nvfp4.plan_gemm."""
    y = _multiply(x.reshape(-1, x.shape[-1]), weights, rows, input_scale, input_mode, bias=bias, arithmetic=arithmetic)
    return y.view(*x.shape[:-1], rows)


def grouped_linear(x: Tensor, weights: Tensor, rows: int, row_ends: Tensor,
                   input_scale: Optional[Tensor] = None, input_mode: int = InputMode.NONE) -> Tensor:
    """Returns y [M, rows]: rows [row_ends[g-1], row_ends[g]) of x times matrix g. Rows of no group are zero."""
    return _multiply(x, weights, rows, input_scale, input_mode, row_ends.numel(), row_ends=row_ends)


def routed_linear(x: Tensor, weights: Tensor, rows: int, groups: int, expert_ids: Tensor,
                  input_scale: Optional[Tensor] = None, input_mode: int = InputMode.NONE) -> Tensor:
    """Returns y [T · top_k, rows]. Row t · top_k + j is multiplied by matrix expert_ids[t, j]; its input is that row of
    x, or row t of x [T, K]. For few rows, each of which reads its own weights. ids are in [0, groups)."""
    return _multiply(x, weights, rows, input_scale, input_mode, groups, expert_ids=expert_ids)


def input_gradient(gradient: Tensor, weights: Tensor, rows: int, cols: int, groups: int,
                   row_ends: Optional[Tensor] = None, expert_ids: Optional[Tensor] = None) -> Tensor:
    """Returns dx [M, cols] = dy [M, rows] · W with dequantized weights. W is the only matrix, or that of the group or
    expert of each row."""
    packed = packed_weights(weights, rows, cols, groups)

    def times(dy, group):
        return dy @ dequantize(_gemm.unpack_weights(packed, group), dy.dtype)

    if row_ends is None and expert_ids is None:
        return times(gradient, 0)
    if row_ends is not None:
        ends = row_ends.tolist()
        parts = [(group, slice(*part)) for group, part in enumerate(zip([0, *ends], ends))]
    else:
        parts = [(group, (expert_ids.reshape(-1) == group).nonzero().squeeze(1))
                 for group in expert_ids.unique().tolist()]
    result = gradient.new_zeros((gradient.shape[0], cols))
    for group, part in parts:
        if len(dy := gradient[part]):
            result[part] = times(dy, group)
    return result


for _name, _function in (("linear", linear), ("grouped_linear", grouped_linear),
                         ("routed_linear", routed_linear), ("input_gradient", input_gradient)):
    for _dispatch_key in ("CPU", "CUDA"):
        _library.impl(_name, _function, _dispatch_key)


@torch.library.register_fake("nvfp4::linear", lib=_library)
def _(x, weights, rows, bias=None, input_scale=None, input_mode=InputMode.NONE, arithmetic="exact"):
    return x.new_empty((*x.shape[:-1], rows))


@torch.library.register_fake("nvfp4::grouped_linear", lib=_library)
def _(x, weights, rows, row_ends, input_scale=None, input_mode=InputMode.NONE):
    return x.new_empty((x.shape[0], rows))


@torch.library.register_fake("nvfp4::routed_linear", lib=_library)
def _(x, weights, rows, groups, expert_ids, input_scale=None, input_mode=InputMode.NONE):
    return x.new_empty((expert_ids.numel(), rows))


@torch.library.register_fake("nvfp4::input_gradient", lib=_library)
def _(gradient, weights, rows, cols, groups, row_ends=None, expert_ids=None):
    return gradient.new_empty((gradient.shape[0], cols))


# Gradients go to x and to the bias; quantizing x counts as the identity.


def _keep_linear(ctx, inputs, output):
    x, weights, rows, *_ = inputs
    ctx.save_for_backward(weights)
    ctx.rows, ctx.cols = rows, x.shape[-1]


def _linear_backward(ctx, gradient):
    (weights,) = ctx.saved_tensors
    flat, to_x, to_bias = gradient.reshape(-1, ctx.rows), None, None
    if ctx.needs_input_grad[0]:
        to_x = torch.ops.nvfp4.input_gradient(flat, weights, ctx.rows, ctx.cols, 1)
        to_x = to_x.view(*gradient.shape[:-1], ctx.cols)
    if any(ctx.needs_input_grad[3:4]):  # arguments with default values are left out
        to_bias = flat.sum(0)
    return to_x, None, None, to_bias, None, None, None


def _keep_grouped(ctx, inputs, output):
    x, weights, rows, row_ends, *_ = inputs
    ctx.save_for_backward(weights, row_ends)
    ctx.rows, ctx.cols = rows, x.shape[-1]


def _grouped_backward(ctx, gradient):
    weights, ends = ctx.saved_tensors
    to_x = torch.ops.nvfp4.input_gradient(gradient, weights, ctx.rows, ctx.cols, ends.numel(), ends)
    return to_x, None, None, None, None, None


def _keep_routed(ctx, inputs, output):
    x, weights, rows, groups, expert_ids, *_ = inputs
    ctx.save_for_backward(weights, expert_ids)
    ctx.rows, ctx.shape, ctx.groups = rows, x.shape, groups


def _routed_backward(ctx, gradient):
    weights, ids = ctx.saved_tensors
    rows, cols = ctx.shape
    to_x = torch.ops.nvfp4.input_gradient(gradient, weights, ctx.rows, cols, ctx.groups, None, ids)
    if rows != ids.numel():  # top_k experts share each row
        to_x = to_x.view(rows, -1, cols).sum(1)
    return to_x, None, None, None, None, None, None


def _keep_gradient(ctx, inputs, output):
    _, weights, rows, _, groups, row_ends, expert_ids = inputs
    ctx.save_for_backward(weights, row_ends, expert_ids)
    ctx.rows, ctx.groups = rows, groups


def _gradient_backward(ctx, gradient):
    """Returns the gradient of input_gradient(). It is linear in dy, so this is the forward GEMM."""
    weights, ends, ids = ctx.saved_tensors
    if ends is not None:
        to_dy = torch.ops.nvfp4.grouped_linear(gradient, weights, ctx.rows, ends)
    elif ids is not None:
        to_dy = torch.ops.nvfp4.routed_linear(gradient, weights, ctx.rows, ctx.groups, ids)
    else:
        to_dy = torch.ops.nvfp4.linear(gradient, weights, ctx.rows)
    return to_dy, None, None, None, None, None, None


for _name, _backward, _keep in (("linear", _linear_backward, _keep_linear),
                                ("grouped_linear", _grouped_backward, _keep_grouped),
                                ("routed_linear", _routed_backward, _keep_routed),
                                ("input_gradient", _gradient_backward, _keep_gradient)):
    torch.library.register_autograd(f"nvfp4::{_name}", _backward, setup_context=_keep, lib=_library)


# On a GPU the host does not read the routing of moe, and all memory is PyTorch's, so that CUDA graphs capture it.

_library.define("moe(Tensor x, Tensor gate_up, Tensor down, Tensor ids, Tensor weights, int intermediate, "
                "int experts, Tensor? input_scale=None, Tensor? down_scale=None, int input_mode=0, "
                "float? limit=None, bool fused=False) -> Tensor")


def fuses_swiglu(device, intermediate, mode):
    """Returns whether the GEMM of gate and up can end in SwiGLU. gate_up is then packed with gate_up=0."""
    return device.type == "cuda" and intermediate % 16 == 0 and mode in (InputMode.NONE, InputMode.STATIC)


class _Experts:
    """The layer for the tensors of one gate_up, and the memory that its calls need."""

    def __init__(self, x, gate_up, down, intermediate, experts, input_scale, down_scale, mode, limit, fused):
        self.key = _key(x, (gate_up, down, input_scale, down_scale), intermediate, experts, mode, limit, fused)
        hidden = x.shape[-1]
        packed = (_gemm.PackedWeights(gate_up.detach(), 2 * intermediate, hidden, experts, gate_up=0 if fused else None),
                  _gemm.PackedWeights(down.detach(), hidden, intermediate, experts))
        scaled = mode == InputMode.STATIC
        self.layer = _core.Moe(*(w._weights for w in packed), mode != InputMode.NONE,
                               input_scale.item() if scaled else None, down_scale.tolist() if scaled else [],
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
    return x.dtype, x.shape[-1], *(None if t is None else t.data_ptr() for t in tensors), *options


_experts_of = WeakTensorKeyDictionary()


def moe(x: Tensor, gate_up: Tensor, down: Tensor, ids: Tensor, weights: Tensor, intermediate: int, experts: int,
        input_scale: Optional[Tensor] = None, down_scale: Optional[Tensor] = None,
        input_mode: int = InputMode.NONE, limit: Optional[float] = None, fused: bool = False) -> Tensor:
    """Returns y [T, H] = Σ weights[t, k] · down(SwiGLU(gate_up(x))) of the experts ids [T, top_k], in the dtype of x.

    gate_up, down  PackedWeights.data of [E, 2·I, H], gate above up, and [E, H, I]; with `fused`, gate_up is packed
                   with gate_up=0
    ids            of any integer type; one outside of [0, E) adds nothing
    input_scale, down_scale  MULTIPLIERS [1] and [E], for input_mode = InputMode.STATIC
    limit          gate is clamped to <= limit, up to [-limit, limit]
    """
    _check_mode(input_scale, input_mode)
    if not x.device == ids.device == weights.device == gate_up.device:
        raise UnsupportedError(f"x is on {x.device}, ids on {ids.device}, weights on {weights.device}, must be on "
                               f"{gate_up.device}, for which gate_up is packed")
    if x.dim() != 2 or ids.shape != weights.shape or ids.dim() != 2 or ids.shape[0] != x.shape[0]:
        raise ShapeError(f"x has shape {list(x.shape)}, ids {list(ids.shape)} and weights {list(weights.shape)}, must be "
                         "[T, H], [T, top_k] and [T, top_k]")
    x, ids, weights = x.contiguous(), ids.to(torch.int32).contiguous(), weights.float().contiguous()
    out = torch.empty_like(x)
    if not x.numel():
        return out
    known = _experts_of.get(gate_up)
    tensors = gate_up, down, input_scale, down_scale
    if known is None or known.key != _key(x, tensors, intermediate, experts, input_mode, limit, fused):
        known = _experts_of[gate_up] = _Experts(x, *tensors[:2], intermediate, experts, *tensors[2:], input_mode,
                                                limit, fused)
    if x.is_cuda:
        sizes = known.sizes_for(x, ids.shape[1])
        memory, space = (workspace(size, x.device) for size in sizes)
        known.layer.run_on_gpu(*ids.shape, x.data_ptr(), ids.data_ptr(), weights.data_ptr(), out.data_ptr(),
                               _address(memory), sizes[0], _address(space), sizes[1], stream_of(x))
        return out
    follow_torch_threads()
    here = (ids >= 0) & (ids < experts)
    ids, weights = torch.where(here, ids, 0), weights * here
    known.layer.run(as_array(x), as_array(ids), as_array(weights), ids.shape[1], as_array(out))
    return out


for _dispatch_key in ("CPU", "CUDA"):
    _library.impl("moe", moe, _dispatch_key)


@torch.library.register_fake("nvfp4::moe", lib=_library)
def _(x, gate_up, down, ids, weights, intermediate, experts, input_scale=None, down_scale=None,
      input_mode=InputMode.NONE, limit=None, fused=False):
    return torch.empty_like(x)
