"""Modules of a model with NVFP4 weights: linear layers and stacked experts."""

import functools

import torch
from torch import nn

from .. import _gemm
from .._errors import FormatError, UnsupportedError
from .._forms import FORMS
from . import experts as expert_operators
from .operators import InputMode, pack_bytes, packed_weights
from .weights import is_linear, matrix_of, positive, quantized, quantizes_inputs


def _unpacked(data, groups, rows, cols):
    """Returns (codes [G, N, K/2], scales [G, N, K/16]) on the device of `data`."""
    packed = packed_weights(data, rows, cols, groups)
    parts = [_gemm.unpack_weights(packed, g) for g in range(groups)]
    return (torch.stack([q.codes for q in parts]),
            torch.stack([q.scales for q in parts]).view(torch.float8_e4m3fn))


class PackedModule:
    """A module with packed weights whose state_dict is that of the checkpoint.

    Before pack() its buffers are those of the checkpoint. pack() puts codes and scales into the order of the kernels of their
    device. Global scales stay as stored.
    """

    _moving = False  # true while unpacked, until all partners are moved to another device or loaded

    @property
    def is_packed(self):
        raise NotImplementedError

    def pack(self):
        """Packs the loaded weights. Raises InvalidValueError for scales that are NaN or negative (on a CPU)."""
        raise NotImplementedError

    def unpack(self):
        """Restores the buffers that were loaded."""
        raise NotImplementedError

    def _plain(self):
        """Returns name -> tensor of the codes and scales that were packed."""
        raise NotImplementedError

    def _kept_dtypes(self):
        """Returns the names of buffers whose dtype no cast may change."""
        raise NotImplementedError

    def _partners(self):
        """Returns the modules that are packed together."""
        return (self,)

    def _unpack_for_a_while(self):
        self.unpack()
        for partner in self._partners():
            partner._moving = True

    def _drop(self, name):
        self._non_persistent_buffers_set.discard(name)
        return self._buffers.pop(name)

    def _apply(self, fn, recurse=True):
        """Moves the module without changing the dtype of its weights. They are packed again for another type of
        device."""
        held = next(b for b in self._buffers.values() if b is not None)
        device = fn(torch.empty(0, dtype=torch.uint8, device=held.device)).device
        if self.is_packed and device.type != held.device.type and "meta" not in (
                device.type, held.device.type):
            self._unpack_for_a_while()
        floats = {name: b for name, b in self._buffers.items()
                  if b is not None and b.is_floating_point() and name in self._kept_dtypes()}
        for name, b in floats.items():  # as bytes, which no cast changes
            self._buffers[name] = b.reshape(-1).view(torch.uint8)
        super()._apply(fn, recurse)
        for name, b in floats.items():
            self._buffers[name] = self._buffers[name].view(b.dtype).reshape(b.shape)
        if self._moving:
            self.pack()
        return self

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.is_packed:
            for name, tensor in self._plain().items():
                destination[prefix + name] = tensor

    def _load_from_state_dict(self, state_dict, prefix, *others):
        if self.is_packed:
            self._unpack_for_a_while()
        super()._load_from_state_dict(state_dict, prefix, *others)
        if self._moving:
            try:
                self.pack()
            except FormatError:
                if self is self._partners()[-1]:  # the last partner packs for all
                    raise


class Nvfp4Linear(PackedModule, nn.Linear):
    """y = x · Wᵀ + bias, in the dtype of x. `weight` are the packed bytes.

    quantize_input  W4A4: x is quantized with the checkpoint's input scale, or, where it has none,
                    with one that is measured for each row

    The attribute `arithmetic` is that of nvfp4.plan_gemm.
    """

    arithmetic = "exact"
    fused = None  #: the FusedLinears that contains this layer

    def __init__(self, form, checkpoint_name, rows, cols, bias, quantize_input, has_input_scale,
                 device="meta"):
        nn.Module.__init__(self)
        self.in_features, self.out_features = cols, rows
        self.columns = 0, rows  #: first and end column in the fused GEMM
        self.form, self.checkpoint_name = form, checkpoint_name
        self.quantize_input = quantize_input
        for name, tensor in form.empty(rows, cols, has_input_scale, device).items():
            self.register_buffer(name, tensor)
        self.register_parameter("bias", bias)
        self.input_mode = _input_mode(quantize_input, has_input_scale)
        self._is_hf_initialized = True

    @classmethod
    def from_linear(cls, linear: nn.Module, *, scheme: str = "w4a4", method: str = "mse") -> "Nvfp4Linear":
        """Returns the layer with the quantized weight of an nn.Linear, or of a Conv1D of transformers, and its bias.

        scheme, method  as of nvfp4.quantize_checkpoint; the input scale of W4A4 is 1, as without statistics
        """
        layer = cls.unpacked_from(linear, quantizes_inputs(scheme), method)
        layer.pack()
        return layer

    @classmethod
    def unpacked_from(cls, linear, quantize_input, method, scale=None, name=""):
        """Returns the layer of from_linear() before pack(). `scale`: the global scale (multiplier, divisor) that partners
        share."""
        if not is_linear(linear):
            raise UnsupportedError(f"{name or 'linear'}: a {type(linear).__name__}, must be an nn.Linear")
        matrix, form = matrix_of(linear), FORMS["modelopt"]
        layer = cls(form, name, *matrix.shape, linear.bias, quantize_input, quantize_input, matrix.device)
        q = quantized(matrix, method, scale)
        for at, part in zip(form.names, (q.codes, q.scales, q.global_scale, 1.0)):
            if at in layer._buffers:
                layer._buffers[at].copy_(part if at == form.input_scale else part.reshape(layer._buffers[at].shape))
        return layer.train(linear.training)

    @property
    def is_packed(self):
        return self.form.scales not in self._buffers

    def _partners(self):
        return self.fused.parts if self.fused else (self,)

    def pack(self):
        parts = self._partners()
        if any(p.is_packed or p._buffers[self.form.codes].device != self.global_scale.device
               for p in parts):
            return  # some partners are not moved yet
        _pack_linears(parts)

    def unpack(self):
        for part in self._partners():
            plain = part._plain()
            part.__dict__.pop("weight", None)
            part.__dict__["_unpacked"] = plain
        for part in self._partners():
            for name in ("weight", "input_multiplier"):
                if name in part._buffers:
                    part._drop(name)
            for name, tensor in part.__dict__.pop("_unpacked").items():
                part.register_buffer(name, tensor)

    def _plain(self):
        rows = self.fused.rows if self.fused else self.out_features
        codes, scales = _unpacked(self.weight, 1, rows, self.in_features)
        mine = slice(*self.columns)
        return {self.form.codes: codes[0, mine], self.form.scales: scales[0, mine]}

    @property
    def packed_weight(self):
        """The packed bytes. Raises UnsupportedError if they are in the order of another kind of device."""
        if self.weight.device.type not in (self.packed_for, "meta"):
            raise UnsupportedError(f"{self.checkpoint_name}: packed for {self.packed_for}, and its tensors alone were moved "
                                   f"to {self.weight.device}; move the module, as enable_model_cpu_offload does")
        return self.weight

    @property
    def global_scale(self):
        """The global scale as stored."""
        return self._buffers[self.form.global_scale]

    def _multiplier(self, name):
        """Returns a stored scale as a MULTIPLIER, [1]."""
        scale = positive(f"{self.checkpoint_name}.{name}", self._buffers[name])
        return self.form.multiplier(scale).reshape(1)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        if self.fused and self.is_packed:
            self.fused.share()
        return self

    def _kept_dtypes(self):
        return (*self.form.names, "input_multiplier")

    def forward(self, x):
        if self.fused is not None:
            return self.fused(self, x)
        scale = self.input_multiplier if self.input_mode == InputMode.STATIC else None
        return torch.ops.nvfp4.linear(x, self.packed_weight, self.out_features, self.bias, scale, self.input_mode,
                                      self.arithmetic)

    def extra_repr(self):
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, {'W4A4' if self.quantize_input else 'W4A16'}"
                f"{', fused' if self.fused else ''}")


def _input_mode(quantize_input, has_input_scale):
    if not quantize_input:
        return InputMode.NONE
    return InputMode.STATIC if has_input_scale else InputMode.DYNAMIC_PER_ROW


def _pack_linears(parts):
    """Packs linear layers of one input, each with its own global scale; the first holds the bytes."""
    form = parts[0].form
    data = pack_bytes([(p._buffers[form.codes], p._buffers[form.scales], p._multiplier(form.global_scale),
                        p.checkpoint_name) for p in parts])
    for part in parts:
        part._drop(form.codes)
        part._drop(form.scales)
        part._moving = False
    owner = parts[0]
    # Models cast x to the dtype of a weight, but for int8 (T5).
    owner.register_buffer("weight", data.view(torch.int8), persistent=False)
    owner.packed_for = data.device.type
    if owner.input_mode == InputMode.STATIC:  # the largest input scale, as in nvfp4::Linear
        scale = torch.stack([p._multiplier(form.input_scale) for p in parts]).amax(0)
        owner.register_buffer("input_multiplier", scale, persistent=False)
    if owner.fused:
        owner.fused.share()


class FusedLinears:
    """Linear layers that read the same x, as one GEMM: q, k and v; gate and up.

    While `module`, which has them, runs, the first that is called with an x does it for all. The others find their
    columns in the result, which the last of them drops. Any other call does the whole GEMM for itself, and so does each
    call in inference mode, where PyTorch does not count changes of x.
    """

    def __init__(self, module, parts):
        self.parts = tuple(parts)
        self.rows = sum(p.out_features for p in parts)
        self._runs, self._held = False, None
        at = 0
        for part in parts:
            part.__dict__["fused"] = self
            part.columns = at, at + part.out_features
            at += part.out_features
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._end, always_call=True)

    def _begin(self, module, args):
        self._runs = True

    def _end(self, module, args, output):
        self._runs, self._held = False, None

    def share(self):
        """Lets parts without bytes of their own show those of the first part."""
        for part in self.parts[1:]:
            part.__dict__["weight"] = self.parts[0].weight

    def _bias(self):
        if all(p.bias is None for p in self.parts):
            return None
        like = next(p.bias for p in self.parts if p.bias is not None)
        return torch.cat([like.new_zeros(p.out_features) if p.bias is None else p.bias for p in self.parts])

    def _state(self, x):
        """Returns the state that the result depends on besides x, or None if it is unknown: inference mode counts no
        versions of x. A compiler sees changes of x."""
        if torch.compiler.is_compiling():
            return 0, torch.is_grad_enabled()
        return None if x.is_inference() else (x._version, torch.is_grad_enabled())

    def __call__(self, part, x):
        owner, held, state = self.parts[0], self._held, self._state(x)
        if held is None or held[0] is not x or held[1] != state:
            if not torch.compiler.is_compiling() and part.weight is not owner.weight:
                raise UnsupportedError(f"{part.checkpoint_name}.weight was assigned, must be loaded by load_state_dict")
            scale = owner.input_multiplier if owner.input_mode == InputMode.STATIC else None
            held = x, state, torch.ops.nvfp4.linear(x, owner.packed_weight, self.rows, self._bias(), scale, owner.input_mode,
                                                    owner.arithmetic)
            self._held = held if self._runs and state is not None else None
        begin, end = part.columns
        if end == self.rows:
            self._held = None
        return held[2][..., begin:end]


#: Linear layers of a module that read the same input.
FUSED = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")


def fuse(model):
    """Fuses linear layers that read the same input into one GEMM."""
    if getattr(model.config, "is_encoder_decoder", False):
        return  # its attention may read keys and values of the encoder
    for module in list(model.modules()):
        for names in FUSED:
            parts = [getattr(module, name, None) for name in names]
            if not all(type(part) is Nvfp4Linear and part.fused is None for part in parts):
                continue
            same = {(p.in_features, p.input_mode, p.bias is None, p.global_scale.device) for p in parts}
            if len(same) == 1:
                FusedLinears(module, parts)


def pack(model):
    """Packs the weights of all layers that are not packed. Returns the model."""
    for module in model.modules():
        if isinstance(module, PackedModule) and not module.is_packed:
            module.pack()
    return model


@functools.cache
def experts_class(model_class):
    """Returns the class of a model's experts that are NVFP4: one for all layers."""
    return type(f"Nvfp4{model_class.__name__}", (Nvfp4Experts, model_class), {"model_class": model_class})


def _unpickled(model_class):
    kind = experts_class(model_class)
    return kind.__new__(kind)


#: Parameters of stacked experts -> prefixes of their buffers.
STACKS = {"gate_up_proj": "gate_up", "down_proj": "down"}


class Nvfp4Experts(PackedModule, nn.Module):
    """Experts that a model of transformers 5 stacks in gate_up_proj [E, 2·I, H] and down_proj [E, H, I].

    The class of a module is a subclass of this and of the model's own, of which the rest is used:
    its activation and how it gates.
    """

    #: Suffixes of the buffer names before packing, in the order of Form.names.
    ENDS = ("codes", "scales", "globals", "inputs")

    @staticmethod
    def takes(module):
        """Reports whether take_over() can make a module one of these."""
        plain = not (getattr(module, "has_bias", False) or getattr(module, "is_transposed", False))
        return plain and hasattr(module, "_apply_gate") and all(
            isinstance(getattr(module, name, None), nn.Parameter) and getattr(module, name).dim() == 3
            for name in STACKS)

    @staticmethod
    def quantize_in_place(module, name, quantize_input, method):
        """Quantizes the experts of a module, without pack(). Gate and up of an expert share a global scale."""
        stacks = {part: getattr(module, parameter).detach() for parameter, part in STACKS.items()}
        device = stacks["down"].device
        Nvfp4Experts.take_over(module, FORMS["modelopt"], name, quantize_input, quantize_input, device)
        for part, stack in stacks.items():
            codes, scales, scale = (module._buffers[f"{part}_{end}"] for end in Nvfp4Experts.ENDS[:3])
            for expert, matrix in enumerate(stack):
                q = quantized(matrix, method, None)
                codes[expert], scales[expert], scale[expert] = q.codes, q.scales, q.global_scale
            if quantize_input:
                module._buffers[f"{part}_inputs"].fill_(1.0)

    @staticmethod
    def take_over(module, form, checkpoint_name, quantize_input, has_input_scale, device="meta"):
        """Makes `module`, the model's experts, one of these, in place."""
        experts, double, hidden = module.gate_up_proj.shape
        del module.gate_up_proj, module.down_proj
        module.__class__ = experts_class(type(module))
        module.form, module.checkpoint_name = form, checkpoint_name
        module.quantize_input = quantize_input
        module.sizes = {"gate_up": (experts, double, hidden, 2), "down": (experts, hidden, double // 2, 1)}
        module.input_mode = _input_mode(quantize_input, has_input_scale)
        module.is_swiglu = expert_operators.is_swiglu(module)
        for part, (groups, rows, cols, globals_) in module.sizes.items():
            make = lambda end, shape, dtype: module.register_buffer(
                f"{part}_{end}", torch.empty(shape, dtype=dtype, device=device))
            make("codes", (groups, rows, cols // 2), torch.uint8)
            make("scales", (groups, rows, cols // 16), torch.float8_e4m3fn)
            make("globals", (groups, globals_), torch.float32)
            if has_input_scale:
                make("inputs", (groups, globals_), torch.float32)
        module._is_hf_initialized = True
        return module

    def __reduce_ex__(self, protocol):
        return _unpickled, (self.model_class,), self.__dict__

    @property
    def is_packed(self):
        return "down_weight" in self._buffers

    def _names(self, part):
        return [f"{part}_{end}" for end in ("codes", "scales")]

    def _multiplier(self, name):
        """Returns stored scales as MULTIPLIERS, [E, 2] or [E, 1]."""
        return self.form.multiplier(positive(f"{self.checkpoint_name}.{name}", self._buffers[name]))

    def pack(self):
        for part, (experts, rows, cols, halves) in self.sizes.items():
            codes, scales = (self._drop(name) for name in self._names(part))
            each = (t.reshape(experts * halves, rows // halves, -1) for t in (codes, scales))
            factors = self._multiplier(f"{part}_globals").reshape(-1, 1)
            data = pack_bytes([(c, s, g, f"{self.checkpoint_name}.{n // halves}")
                               for n, (c, s, g) in enumerate(zip(*each, factors))], experts)
            self.register_buffer(f"{part}_weight", data, persistent=False)
            if self.input_mode == InputMode.STATIC:
                # x is quantized once for all experts, the input of down_proj once for each expert.
                scale = self._multiplier(f"{part}_inputs")
                scale = scale.amax().reshape(1) if part == "gate_up" else scale.reshape(-1)
                self.register_buffer(f"{part}_multiplier", scale, persistent=False)
        self._moving = False

    def unpack(self):
        plain = self._plain()
        for part in self.sizes:
            for end in ("weight", "multiplier"):
                if f"{part}_{end}" in self._buffers:
                    self._drop(f"{part}_{end}")
        for name, tensor in plain.items():
            self.register_buffer(name, tensor)

    def _plain(self):
        plain = {}
        for part, (experts, rows, cols, _) in self.sizes.items():
            plain.update(zip(self._names(part), _unpacked(
                self._buffers[f"{part}_weight"], experts, rows, cols)))
        return plain

    def _kept_dtypes(self):
        return [f"{part}_{end}" for part in self.sizes for end in (*self.ENDS, "multiplier")]

    def _arguments(self):
        """Returns the arguments of nvfp4.torch.experts.forward() after x and ids."""
        stacks = (expert_operators.Stack(self._buffers[f"{part}_weight"], rows,
                                       self._buffers.get(f"{part}_multiplier"))
                  for part, (_, rows, _, _) in self.sizes.items())
        return *stacks, self.sizes["gate_up"][0], self.input_mode, self._apply_gate

    def forward(self, hidden_states, top_k_index, top_k_weights):
        if self.is_swiglu and not torch.is_grad_enabled():
            held, (experts, _, intermediate, _) = self._buffers, self.sizes["down"]
            return torch.ops.nvfp4.moe(hidden_states, held["gate_up_weight"], held["down_weight"], top_k_index, top_k_weights,
                                       intermediate, experts, held.get("gate_up_multiplier"), held.get("down_multiplier"),
                                       self.input_mode)
        y = expert_operators.forward(hidden_states, top_k_index, *self._arguments())
        return (y * top_k_weights.unsqueeze(-1)).sum(dim=1).to(hidden_states.dtype)
