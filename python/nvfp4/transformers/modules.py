"""Modules of a model whose weights are NVFP4: a linear layer, and experts that are stacked."""

import torch
from torch import nn

from .. import _gemm, _torch_layers
from .._errors import FormatError, InvalidValueError
from .._quantize import QuantizedTensor
from .._torch_layers import DIVIDE, KEEP, MEASURE, MULTIPLY


def _packed(codes, scales, multipliers):
    """The bytes of packed weights [..., N, K/2] whose parts have their own global scale:
    `multipliers` [G, parts], parts one below the other in each of G groups."""
    groups, parts = multipliers.shape
    rows, cols = codes.shape[-2] // parts, 2 * codes.shape[-1]
    each = zip(codes.reshape(groups * parts, rows, -1),
               scales.view(torch.uint8).reshape(groups * parts, rows, -1),
               multipliers.reshape(-1, 1))
    packed = _gemm.pack_weights(*(QuantizedTensor(c, s, g, (rows, cols)) for c, s, g in each),
                                groups=groups)
    _torch_layers.reserve_workspace(codes.device, cols)
    return packed.data if isinstance(packed.data, torch.Tensor) else torch.from_numpy(
        packed.data.copy())


def _unpacked(data, groups, rows, cols):
    """(codes [G, N, K/2], scales [G, N, K/16]) on the device of `data`."""
    packed = _gemm.PackedWeights(data, rows, cols, groups)
    parts = [_gemm.unpack_weights(packed, g) for g in range(groups)]
    return (torch.stack([q.codes for q in parts]),
            torch.stack([q.scales for q in parts]).view(torch.float8_e4m3fn))


def _checked(name, scale):
    if not bool(((scale > 0) & scale.isfinite()).all()):
        raise FormatError(f"tensor '{name}': {scale.flatten().tolist()[0]}, must be positive and finite")
    return scale


def _call(name, *arguments):
    """An operator; without a gradient and a compiler, which need the dispatcher, what it runs."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return getattr(torch.ops.nvfp4, name)(*arguments)
    return getattr(_torch_layers, name)(*arguments)


class _Packs:
    """A module that holds packed weights, and looks in its state_dict like the checkpoint.

    Until pack() buffers are as the checkpoint has them; then codes and scales are packed in the order
    in which the kernels of their device read them. Global scales stay beside them, as stored.
    """

    def _weights(self):
        """(packed, codes, scales, groups, rows, cols): names of buffers and sizes of each weight."""
        raise NotImplementedError

    def _multipliers(self, packed):
        raise NotImplementedError

    @property
    def is_packed(self):
        return all(name in self._buffers for name, *_ in self._weights())

    def pack(self):
        """Packs what was loaded. InvalidValueError for scales that are NaN or negative (on a CPU)."""
        for packed, codes, scales, *_ in self._weights():
            loaded, loaded_scales = self._buffers.pop(codes), self._buffers.pop(scales)
            try:
                data = _packed(loaded, loaded_scales, self._multipliers(packed))
            except InvalidValueError as wrong:
                raise InvalidValueError(f"{self.checkpoint_name}.{scales}: {wrong}") from None
            self._non_persistent_buffers_set.discard(packed)
            self.register_buffer(packed, data, persistent=False)

    def unpack(self):
        """The buffers as they were loaded."""
        for packed, codes, scales, groups, rows, cols in self._weights():
            loaded, loaded_scales = self._plain(packed, groups, rows, cols)
            del self._buffers[packed]
            self._non_persistent_buffers_set.discard(packed)
            self.register_buffer(codes, loaded)
            self.register_buffer(scales, loaded_scales)

    def _plain(self, packed, groups, rows, cols):
        return _unpacked(self._buffers[packed], groups, rows, cols)

    def _apply(self, fn, recurse=True):
        """Moves; never changes the dtype of what belongs to the weights. Another kind of device
        wants them packed anew."""
        first = next(iter(self._weights()))
        held = self._buffers.get(first[0], self._buffers.get(first[1]))
        device = fn(torch.empty(0, dtype=torch.uint8, device=held.device)).device
        repack = self.is_packed and device.type != held.device.type and "meta" not in (
            device.type, held.device.type)
        if repack:
            self.unpack()
        floats = {name: b for name, b in self._buffers.items()
                  if b is not None and b.is_floating_point() and name in self._kept_dtypes()}
        for name, b in floats.items():  # seen as bytes, which no cast touches
            self._buffers[name] = b.reshape(-1).view(torch.uint8)
        super()._apply(fn, recurse)
        for name, b in floats.items():
            self._buffers[name] = self._buffers[name].view(b.dtype).reshape(b.shape)
        if repack:
            self.pack()
        return self

    def _kept_dtypes(self):
        raise NotImplementedError

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.is_packed:
            for packed, codes, scales, groups, rows, cols in self._weights():
                destination[prefix + codes], destination[prefix + scales] = self._plain(
                    packed, groups, rows, cols)

    def _load_from_state_dict(self, state_dict, prefix, *others):
        was_packed = self.is_packed
        if was_packed:
            self.unpack()
        super()._load_from_state_dict(state_dict, prefix, *others)
        if was_packed:
            self.pack()


class Nvfp4Linear(_Packs, nn.Linear):
    """y = x · Wᵀ + bias, in the dtype of x. `weight` are the packed bytes.

    quantize_input  W4A4: x is quantized with the checkpoint's input scale, or, where it has none,
                    with one that is measured for each row
    """

    def __init__(self, form, checkpoint_name, rows, cols, bias, quantize_input, has_input_scale,
                 device="meta"):
        nn.Module.__init__(self)
        self.in_features, self.out_features = cols, rows
        self.form, self.checkpoint_name = form, checkpoint_name
        self.quantize_input = quantize_input
        for name, tensor in form.empty(rows, cols, has_input_scale, device).items():
            self.register_buffer(name, tensor)
        self.register_parameter("bias", bias)
        self.input_mode = KEEP if not quantize_input else MEASURE if not has_input_scale else (
            DIVIDE if form.divisors else MULTIPLY)
        self._is_hf_initialized = True

    @property
    def is_packed(self):
        return self.form.scales not in self._buffers

    def _weights(self):
        yield "weight", self.form.codes, self.form.scales, 1, self.out_features, self.in_features

    def _multipliers(self, packed):
        scale = self._buffers[self.form.global_scale]
        _checked(f"{self.checkpoint_name}.{self.form.global_scale}", scale)
        return self.form.multiplier(scale).reshape(1, 1)

    def _kept_dtypes(self):
        return self.form.names

    def _plain(self, *sizes):
        codes, scales = super()._plain(*sizes)
        return codes[0], scales[0]

    def pack(self):
        super().pack()
        scale = self._buffers.get(self.form.input_scale)
        if scale is not None and self.quantize_input:
            _checked(f"{self.checkpoint_name}.{self.form.input_scale}", scale)

    def forward(self, x):
        scale = getattr(self, self.form.input_scale) if self.input_mode > MEASURE else None
        return _call("linear", x, self.weight, self.out_features, self.bias, scale, self.input_mode)

    def extra_repr(self):
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, {'W4A4' if self.quantize_input else 'W4A16'}")


class Nvfp4Experts(_Packs, nn.Module):
    """Experts that a model of transformers 5 stacks in gate_up_proj [E, 2·I, H] and down_proj [E, H, I].

    The class of a module is a subclass of this and of the model's own, of which the rest is used:
    its activation and how it gates.
    """

    #: Ends of the names of the buffers, before they are packed, in the order of Form.names.
    ENDS = ("codes", "scales", "globals", "inputs")

    @classmethod
    def take_over(cls, module, form, checkpoint_name, quantize_input, has_input_scale, device="meta"):
        """Makes `module`, the model's experts, one of these, in place."""
        experts, double, hidden = module.gate_up_proj.shape
        own = type(module)
        del module.gate_up_proj, module.down_proj
        module.__class__ = type(f"Nvfp4{own.__name__}", (cls, own), {})
        module.form, module.checkpoint_name = form, checkpoint_name
        module.quantize_input = quantize_input
        module.sizes = {"gate_up": (experts, double, hidden, 2), "down": (experts, hidden, double // 2, 1)}
        module.input_mode = KEEP if not quantize_input else MULTIPLY if has_input_scale else MEASURE
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

    def _weights(self):
        for part, (groups, rows, cols, _) in self.sizes.items():
            yield f"{part}_weight", f"{part}_codes", f"{part}_scales", groups, rows, cols

    def _multipliers(self, packed):
        name = packed.replace("weight", "globals")
        return self.form.multiplier(_checked(f"{self.checkpoint_name}.{name}", self._buffers[name]))

    def _kept_dtypes(self):
        return [f"{part}_{end}" for part in self.sizes for end in self.ENDS] + self._derived()

    def _derived(self):
        return ["gate_up_multiplier", "down_multiplier"]

    def pack(self):
        super().pack()
        if self.input_mode == MULTIPLY:
            # x is quantized once for all experts; what goes into down_proj for each of them.
            for part in self.sizes:
                name = f"{part}_inputs"
                scale = self.form.multiplier(
                    _checked(f"{self.checkpoint_name}.{name}", self._buffers[name]))
                self.register_buffer(
                    f"{part}_multiplier", scale.amax().reshape(1) if part == "gate_up"
                    else scale.reshape(-1), persistent=False)

    def forward(self, hidden_states, top_k_index, top_k_weights):
        top_k = top_k_index.shape[-1]
        order = torch.argsort(top_k_index.reshape(-1), stable=True)
        ids = top_k_index.reshape(-1)[order]
        experts, double, hidden, _ = self.sizes["gate_up"]
        # Ids beyond the last expert (expert parallelism) lie behind the last end: rows of none.
        ends = torch.searchsorted(
            ids, torch.arange(experts, device=ids.device, dtype=ids.dtype), right=True).to(torch.int32)
        scales = None, None
        if self.input_mode == MULTIPLY:
            scales = self.gate_up_multiplier, self.down_multiplier[ids.clamp(max=experts - 1)]
        x = hidden_states[order // top_k]
        y = _call("grouped_linear", x, self.gate_up_weight, double, ends, scales[0], self.input_mode)
        y = self._apply_gate(y)
        y = _call("grouped_linear", y, self.down_weight, hidden, ends, scales[1], self.input_mode)
        y = y * top_k_weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order).scatter_(
            0, order, torch.arange(order.numel(), device=order.device))
        return y[back].view(-1, top_k, hidden).sum(dim=1).to(hidden_states.dtype)
