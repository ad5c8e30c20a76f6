"""Linear layers and experts for vLLM and SGLang, whose parameter classes, loaders and names have one origin. Each
engine's module combines these classes with the engine's base classes."""

import torch
from torch import Tensor, nn

from .._errors import FormatError, ShapeError, UnsupportedError
from ..torch.operators import InputMode, fuses_swiglu, pack_bytes
from ..torch.weights import positive
from .config import arithmetic

BLOCK = 16


def _check_cut(name, cols, whole):
    if cols % BLOCK:
        raise ShapeError(f"{name}: {cols} of {whole} inputs on each rank, must be a multiple of {BLOCK}; "
                         "choose fewer ranks")


def _nan(*shape, dtype=torch.float32):
    """Returns NaN, which shows what no loader wrote."""
    return torch.full(shape, torch.nan).to(dtype)


def _check_loaded(name, scales, stored):
    if bool(scales.float().isnan().any()):
        raise FormatError(f"{name}: no '{stored}' was loaded for some of its rows, or one is NaN; if the "
                          "checkpoint stores the layer in BF16, quantization_config must ignore it")


def _multipliers(form, name, stored, scales):
    return form.multiplier(positive(f"{name}.{stored}", scales))


def _input(form, scheme, name, scales, before):
    """Returns (input mode, scales as MULTIPLIERS or None) for loaded input scales. `before`: the mode of a layer whose
    weights are replaced; scales that no loader wrote then hold anything."""
    if scheme == "W4A16":
        return InputMode.NONE, None
    if before == InputMode.DYNAMIC_PER_ROW or bool(scales.isnan().any()):
        return InputMode.DYNAMIC_PER_ROW, None  # no stored scale
    return InputMode.STATIC, _multipliers(form, name, form.input_scale, scales)


def _replace(layer, old, **new):
    for name in old:
        delattr(layer, name)
    for name, tensor in new.items():
        layer.register_parameter(name, None if tensor is None else nn.Parameter(tensor, False))


def _scalar_of_all_parts(loader):
    """Returns a loader for a layer that is stored fused. Its one scalar comes without the name of a part. A loader of
    the engines writes it to the first part only, or to all."""

    def load(param, loaded_weight, *part, **others):
        loader(param, loaded_weight, *part, **others)
        if all(name is None for name in (*part, *others.values())):
            param.data.fill_(loaded_weight.item())

    return load


class LinearMethod:
    """Computes y = x · Wᵀ + bias of a linear layer on one rank. Each fused part has its own global scale."""

    parameter = None  #: the module with the parameter classes of the engine
    input_mode = None  #: known once weights are loaded

    def __init__(self, form, scheme, name):
        self.form, self.scheme, self.name = form, scheme, name
        self.arithmetic = arithmetic()

    def create_weights(self, layer, input_size_per_partition, output_partition_sizes, input_size,
                       output_size, params_dtype, **attributes):
        rows, cols = sum(output_partition_sizes), input_size_per_partition
        _check_cut(self.name, cols, input_size)
        layer.logical_widths = self.parts = list(output_partition_sizes)
        layer.input_size_per_partition, layer.output_size_per_partition = cols, rows
        form, kinds, loader = self.form, self.parameter, attributes.get("weight_loader")

        def add(name, kind, data, weight_loader=loader, **dims):
            layer.register_parameter(name, kind(data=data, weight_loader=weight_loader, **dims))

        add(form.codes, kinds.ModelWeightParameter, torch.zeros(rows, cols // 2, dtype=torch.uint8),
            input_dim=1, output_dim=0)
        add(form.scales, kinds.GroupQuantScaleParameter,
            _nan(rows, cols // BLOCK, dtype=torch.float8_e4m3fn), input_dim=1, output_dim=0)
        for name in (form.global_scale, form.input_scale):
            add(name, kinds.PerTensorScaleParameter, _nan(len(self.parts)), _scalar_of_all_parts(loader))
            getattr(layer, name).needs_scalar_to_array = True  # for loaders older than the classes

    def process_weights_after_loading(self, layer):
        form = self.form
        codes, scales = getattr(layer, form.codes).data, getattr(layer, form.scales).data
        _check_loaded(self.name, scales, form.scales)
        there = torch.tensor(self.parts, device=scales.device) > 0
        factors, inputs = (getattr(layer, name).data[there] for name in (form.global_scale, form.input_scale))
        _check_loaded(self.name, factors, form.global_scale)
        factors = _multipliers(form, self.name, form.global_scale, factors)
        rows = [n for n in self.parts if n]
        parts = [(c, s, factor.reshape(1), self.name)
                 for c, s, factor in zip(codes.split(rows), scales.split(rows), factors)]
        self.input_mode, inputs = _input(form, self.scheme, self.name, inputs, self.input_mode)
        if self.input_mode != InputMode.NONE:
            self.arithmetic = "exact"
        # x is quantized once, with the largest scale.
        _replace(layer, form.names, weight=pack_bytes(parts),
                 input_multiplier=None if inputs is None else inputs.amax().reshape(1))

    def apply(self, layer, x: Tensor, bias=None):
        return torch.ops.nvfp4.linear(x, layer.weight, layer.output_size_per_partition, bias,
                                      layer.input_multiplier, self.input_mode, self.arithmetic)


def _scalars_of_each_half(loader):
    """Returns a loader for scalars of w13. Loaders of the engines write a name with "input_scale" over both halves, and
    any other name into the half that it belongs to."""

    def load(param, loaded_weight, weight_name, *more, **others):
        name = weight_name.replace("input_scale", "input_global_scale")
        return loader(param, loaded_weight, name, *more, **others)

    return load


class ExpertsMethod:
    """The experts of one rank: w13 [E, 2·I, H], gate above up, and w2 [E, H, I]."""

    #: Attributes by which a loader recognizes scales.
    SCALARS, BLOCKS = {"quant_method": "tensor"}, {"quant_method": "group"}
    input_mode = None  #: known once weights are loaded

    def __init__(self, form, scheme, name):
        self.form, self.scheme, self.name = form, scheme, name

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition,
                       params_dtype, **attributes):
        inner, form = intermediate_size_per_partition, self.form
        if attributes.pop("with_bias", False) or getattr(getattr(self, "moe", None), "has_bias", False):
            raise UnsupportedError(f"{self.name}: experts with biases, must be without")
        _check_cut(f"{self.name}, down_proj", inner, "its")
        _check_cut(f"{self.name}, gate_proj and up_proj", hidden_size, "its")
        self.sizes = {"w13": (num_experts, 2 * inner, hidden_size, (num_experts, 2)),
                      "w2": (num_experts, hidden_size, inner, (num_experts,))}

        def add(name, data, **more):
            parameter = nn.Parameter(data, requires_grad=False)
            layer.register_parameter(name, parameter)
            for key, value in {**attributes, **more}.items():
                setattr(parameter, key, value)

        for part, (experts, rows, cols, scalars) in self.sizes.items():
            add(f"{part}_{form.codes}", torch.zeros(experts, rows, cols // 2, dtype=torch.uint8))
            add(f"{part}_{form.scales}", _nan(experts, rows, cols // BLOCK, dtype=torch.float8_e4m3fn),
                **self.BLOCKS)
            add(f"{part}_{form.global_scale}", _nan(*scalars), **self.SCALARS)
            add(f"{part}_{form.input_scale}", _nan(*scalars), **self.SCALARS,
                weight_loader=_scalars_of_each_half(attributes["weight_loader"]))

    def process_weights_after_loading(self, layer):
        form, packed, before = self.form, {}, self.input_mode
        for part, (experts, rows, cols, scalars) in self.sizes.items():
            codes, scales, factors, inputs = (getattr(layer, f"{part}_{name}").data for name in form.names)
            for stored, tensor in ((form.scales, scales), (form.global_scale, factors)):
                _check_loaded(f"{self.name}, {part}", tensor, stored)
            halves = factors.numel() // experts
            each = (t.reshape(experts * halves, rows // halves, -1) for t in (codes, scales))
            factors = _multipliers(form, self.name, form.global_scale, factors).reshape(-1, 1)
            self.input_mode, inputs = _input(form, self.scheme, self.name, inputs, before)
            self.fused = fuses_swiglu(codes.device, self.sizes["w2"][2], self.input_mode)
            packed[f"{part}_weight"] = pack_bytes(
                [(c, s, g, f"{self.name}.{n // halves}") for n, (c, s, g) in enumerate(zip(*each, factors))],
                experts, 0 if self.fused and part == "w13" else None)
            if inputs is not None:  # x is quantized once for all experts, the input of w2 once for each
                inputs = inputs.amax().reshape(1) if part == "w13" else inputs.reshape(-1)
            packed[f"{part}_multiplier"] = inputs
        if (packed["w13_multiplier"] is None) != (packed["w2_multiplier"] is None):
            raise FormatError(f"{self.name}: input scales of one projection and not of the other")
        _replace(layer, [f"{part}_{name}" for part in self.sizes for name in form.names], **packed)

    def run(self, layer, x, ids, weights, limit=None, weights_on_inputs=False):
        """Returns y [T, H]. Ids outside of [0, E) are of experts on other ranks and add nothing."""
        if weights_on_inputs:
            if ids.shape[-1] != 1:
                raise UnsupportedError(f"{self.name}: weights of {ids.shape[-1]} choices on one input, must "
                                       "be one")
            x, weights = x * weights.to(x.dtype), torch.ones_like(weights)
        experts, _, intermediate, _ = self.sizes["w2"]
        return torch.ops.nvfp4.moe(x, layer.w13_weight, layer.w2_weight, ids, weights, intermediate, experts,
                                   layer.w13_multiplier, layer.w2_multiplier, self.input_mode,
                                   limit, self.fused)
