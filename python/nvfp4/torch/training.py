"""Quantization-aware training: prepare() rounds weights and inputs to NVFP4 in the forward pass, export() writes the
trained checkpoint."""

import bisect
import functools
import json
import shutil
import warnings
from collections import defaultdict
from os import PathLike
from pathlib import Path
from typing import Optional, Union

import torch
from torch import Tensor, nn

from .._errors import FormatError, InvalidValueError, UnsupportedError
from .._quantization_config import Schemes
from .._quantize import known_method
from .modules import STACKS
from .quantize import layers_of, stored_names, weights_of
from .weights import check_memory, check_values, is_transposed, positive

#: The files of a checkpoint that describe its bytes. An export has no such files.
_DESCRIPTIONS = "README.md", "nvfp4.files.json"


class _StraightThrough(torch.autograd.Function):
    """Returns `rounded` instead of x. The gradient goes to x unchanged."""

    @staticmethod
    def forward(ctx, x, rounded):
        return rounded

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def nearest_codes(rows, scales, multipliers):
    """Returns the codes [R, K/2] of the E2M1 values nearest to rows [R, K] under given scales; ties go to the even code."""
    steps = scales.view(torch.float8_e4m3fn).float() * multipliers[:, None]
    units = rows.float().unflatten(1, (-1, 16)) / steps[..., None]
    units = torch.where(steps[..., None] > 0, units, 0).flatten(1)
    large = units.abs().clamp(max=6)
    # The codes of 0 to 2 are half units, those of 2 to 4 units from 2, and those of 4 to 6 double units from 4.
    codes = torch.where(large < 2, (large * 2).round(), torch.where(large < 4, large.round() + 2, (large / 2).round() + 4))
    codes = codes.to(torch.uint8) | (units.signbit().to(torch.uint8) << 3)
    return codes[:, ::2] | (codes[:, 1::2] << 4)


class Prepared:
    """A layer that rounds its weights, and in W4A4 its input, to NVFP4 in each forward pass.

    Its parameters are the master weights. Its buffers are not in the state_dict: scales as uint8, and global scales as
    the int32 of their bits, which no cast changes.
    """

    def codes_of(self, part: str, master: Tensor):
        """Returns (codes, scales, global scales) of a weight as rows [R, K], on the device of `master`."""
        rows = master.detach().reshape(-1, master.shape[-1])
        multipliers = self._buffers[f"{part}_globals"].to(rows.device).view(torch.float32)
        if self.method is not None:
            return torch.ops.nvfp4.quantize(rows, self.method, multipliers, scope="vector")
        scales = self._buffers[f"{part}_scales"].to(rows.device)
        return nearest_codes(rows, scales, multipliers), scales, multipliers

    def weight_of(self, part: str) -> Tensor:
        """Returns a weight in NVFP4, in the dtype of the master weight."""
        master = self._parameters[part]
        with torch.no_grad():
            rounded = torch.ops.nvfp4.dequantize(*self.codes_of(part, master), master.dtype)
        return _StraightThrough.apply(master, rounded.view_as(master))

    def input_of(self, part: str, x: Tensor, expert: int = 0) -> Tensor:
        """Returns the input of a weight in NVFP4, or x in W4A16."""
        if self.activations is None or not x.numel():
            return x
        scale = self._buffers.get(f"{part}_inputs")
        with torch.no_grad():
            rows = x.reshape(-1, x.shape[-1])
            given = None if scale is None else scale[expert:expert + 1].view(torch.float32)
            q = torch.ops.nvfp4.quantize(rows, self.activations, given, scope="vector" if scale is None else "tensor")
            rounded = torch.ops.nvfp4.dequantize(*q, x.dtype)
        return _StraightThrough.apply(x, rounded.view_as(x))


class _Linear(Prepared):
    parts = ("weight",)

    def forward(self, x):
        return nn.functional.linear(self.input_of("weight", x), self.weight_of("weight"), self.bias)


class _Experts(Prepared):
    parts = tuple(STACKS)

    def forward(self, hidden_states, top_k_index, top_k_weights):
        gate_up, down = map(self.weight_of, self.parts)
        x, out = self.input_of("gate_up_proj", hidden_states), torch.zeros_like(hidden_states)
        for expert in range(len(down)):
            token, choice = (top_k_index == expert).nonzero(as_tuple=True)
            y = self._apply_gate(nn.functional.linear(x[token], gate_up[expert]))
            y = nn.functional.linear(self.input_of("down_proj", y, expert), down[expert])
            out = out.index_add(0, token, (y * top_k_weights[token, choice, None]).to(out.dtype))
        return out


@functools.cache
def _prepared_class(model_class):
    base = _Linear if issubclass(model_class, nn.Linear) else _Experts
    return type(f"Prepared{model_class.__name__}", (base, model_class), {})


class _Source:
    """The NVFP4 weights of a checkpoint."""

    def __init__(self, folder):
        from safetensors import safe_open

        from ..transformers.scan import quantized_weights
        self.folder, files = folder, sorted(folder.glob("*.safetensors"))
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["quantization_config"]
        except (OSError, ValueError, KeyError, TypeError) as missing:
            raise FormatError(f"checkpoint = {folder}: no config.json with a quantization_config, must be a folder that "
                              "nvfp4 quantize writes") from missing
        self.schemes = Schemes(config)
        self.form = self.schemes.form
        self.weights, in_fp8 = quantized_weights(files, self.form)
        if in_fp8:
            raise UnsupportedError(f"checkpoint = {folder}: {next(iter(in_fp8))} is FP8, all quantized weights must be NVFP4")
        opened = [safe_open(file, "pt") for file in files]
        self._holders = {name: file for file in opened for name in file.keys()}

    def tensor(self, module, end):
        return self._holders[f"{module}.{end}"].get_tensor(f"{module}.{end}")

    def multiplier(self, module, end):
        """Returns a global scale of a weight as a MULTIPLIER [1]."""
        return self.form.multiplier(positive(f"{module}.{end}", self.tensor(module, end))).reshape(1)

    def scales(self, module):
        """Returns the block scales of a weight as uint8. Raises FormatError if one is NaN or negative."""
        scales = self.tensor(module, self.form.scales).view(torch.uint8)
        if bool((scales > 0x7E).any()):
            raise FormatError(f"tensor '{module}.{self.form.scales}': has NaN or negative scales, must be positive or 0")
        return scales


def prepare(model: nn.Module, checkpoint: Union[str, PathLike], *, method: Optional[str] = None,
            activations: Optional[str] = None) -> nn.Module:
    """Prepares an unquantized model for training as an NVFP4 checkpoint of it, in place, and returns it.

    checkpoint  a folder that `nvfp4 quantize` made of the model. It decides which layers are NVFP4, which of them are
                W4A4, and all global scales. Its dequantized weights become the master weights.
    method  None: block scales stay those of the checkpoint; otherwise each forward pass chooses them by this method
    activations  None: inputs of W4A4 layers are quantized by `max` with the checkpoint's input scales, as
                 nvfp4.transformers does; "bf16": not at all; otherwise by this method, with a global scale for each row
    Gradients pass the rounding unchanged. What is trained is what requires_grad. Raises FormatError,
    InvalidValueError and UnsupportedError.
    """
    known_method(method)
    known_method(activations, "activations", ("bf16",))
    folder = Path(checkpoint).resolve()
    source = _Source(folder)
    layers = {name: layer for name, layer in layers_of(model).items() if not is_transposed(layer)}
    found = _pieces(model, layers, source)
    for name, parts in found.items():
        _check_layer(name, layers[name], parts, source)
    for name, parts in found.items():
        _prepare_layer(layers[name], parts, source, method, activations)
    model.nvfp4_checkpoint = str(folder)
    return model


def _pieces(model, layers, source):
    """Returns layer -> parameter -> [(module of the checkpoint, its rows in the parameter)]."""
    starts, owners, rows, at = [], [], {}, 0
    for name, layer in layers.items():
        for part in weights_of(layer):
            shape = getattr(layer, part).shape[:-1]
            starts.append(at)
            owners.append((name, part))
            rows[f"{name}.{part}"] = torch.arange(at, at + shape.numel()).view(*shape, 1)
            at += shape.numel()
    places = stored_names(model, rows)
    found, left = defaultdict(lambda: defaultdict(list)), []
    for module in source.weights:
        if f"{module}.weight" not in places:
            left.append(module)
            continue
        index = places[f"{module}.weight"].reshape(-1)
        owner = bisect.bisect(starts, int(index[0])) - 1
        name, part = owners[owner]
        found[name][part].append((module, index - starts[owner]))
    if not found:
        raise FormatError(f"checkpoint = {source.folder}: {left[0]} is no layer of the {type(model).__name__}, must be a "
                          "checkpoint of the model")
    if left:
        warnings.warn(f"{len(left)} NVFP4 weights, such as {left[0]}, are in no linear layer or stack of experts of the "
                      "model; export() copies them", stacklevel=3)
    return found


def _check_layer(name, layer, parts, source):
    """Raises FormatError or UnsupportedError unless NVFP4 weights of the checkpoint make up the parameters of a layer."""
    for part in weights_of(layer):
        parameter, pieces = getattr(layer, part), parts[part]
        check_memory(f"{name}.{part}", parameter)
        for module, index in pieces:
            weight = source.weights[module]
            if (weight.rows, weight.cols) != (len(index), parameter.shape[-1]):
                raise FormatError(f"{module}: [{weight.rows}, {weight.cols}], the model has "
                                  f"[{len(index)}, {parameter.shape[-1]}]")
        if sum(len(index) for _, index in pieces) != parameter.shape[:-1].numel():
            raise UnsupportedError(f"{name}.{part}: some of its weights are not NVFP4, must be all or none")
    modules = [module for pieces in parts.values() for module, _ in pieces]
    if len({source.schemes.quantizes_input(module) for module in modules}) != 1:
        raise UnsupportedError(f"{name}: some experts are W4A4 and some W4A16, must be one")


def _prepare_layer(layer, parts, source, method, activations):
    """Makes a layer a Prepared one. `parts`: parameter -> its pieces of the checkpoint."""
    modules = [module for pieces in parts.values() for module, _ in pieces]
    quantizes_input = source.schemes.quantizes_input(modules[0])
    static = quantizes_input and activations is None and all(source.weights[m].has_input_scale for m in modules)
    layer.form, layer.method = source.form, method
    layer.activations = (activations or "max") if quantizes_input and activations != "bf16" else None
    for part, pieces in parts.items():
        parameter = getattr(layer, part)
        rows = parameter.data.view(-1, parameter.shape[-1])
        scales = torch.empty(len(rows), rows.shape[1] // 16, dtype=torch.uint8)
        multipliers = torch.empty(len(rows))
        for module, index in pieces:
            scales[index] = source.scales(module)
            multipliers[index] = multiplier = source.multiplier(module, source.form.global_scale)
            values = torch.ops.nvfp4.dequantize(source.tensor(module, source.form.codes), scales[index], multiplier,
                                                torch.float32)
            rows[index.to(rows.device)] = values.to(rows.device, rows.dtype)
        buffers = {"globals": multipliers.view(torch.int32)}
        if method is None:
            buffers["scales"] = scales
        if static:
            ordered = sorted(pieces, key=lambda piece: int(piece[1][0]))
            inputs = torch.cat([source.multiplier(module, source.form.input_scale) for module, _ in ordered])
            # The input of gate and up of all experts has their largest scale, as in Nvfp4Experts.
            buffers["inputs"] = (inputs.amax().reshape(1) if part == "gate_up_proj" else inputs).view(torch.int32)
        for end, buffer in buffers.items():
            layer.register_buffer(f"{part}_{end}", buffer.to(rows.device), persistent=False)
    layer.__class__ = _prepared_class(type(layer))


def export(model: nn.Module, folder: Union[str, PathLike]) -> None:
    """Writes a model of prepare() as an NVFP4 checkpoint: a copy of the checkpoint of prepare() with the trained values.
    Codes and scales are those that a forward pass makes of the present master weights.

    With FSDP2 every rank calls it, and rank 0 writes. Raises FormatError and InvalidValueError.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file
    source = getattr(model, "nvfp4_checkpoint", None)
    if source is None:
        raise InvalidValueError(f"model: a {type(model).__name__} that prepare() did not return")
    state = {}
    for name, tensor in model.state_dict().items():
        state[name] = (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).cpu()
        check_values(name, state[name])
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_rank():
        return
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidValueError(f"folder = {folder}: has files, must be empty or new")
    new = _trained(model, state)
    for file in sorted(Path(source).iterdir()):
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as tensors:
                made = {name: _replaced(name, tensors.get_tensor(name), new.get(name)) for name in tensors.keys()}
                save_file(made, folder / file.name, tensors.metadata())
            shutil.copymode(file, folder / file.name)  # save_file lets only its user read the file
        elif file.is_file() and file.name not in _DESCRIPTIONS:
            shutil.copyfile(file, folder / file.name)


def _trained(model, state):
    """Returns name in the checkpoint -> trained tensor. Replaces the master weights in `state` by their codes."""
    scales, form = {}, None
    for name, layer in model.named_modules():
        for part in layer.parts if isinstance(layer, Prepared) else ():
            key, form = f"{name}.{part}", layer.form  # one form: all layers are of one checkpoint
            shape = state[key].shape[:-1]
            codes, of_blocks, _ = layer.codes_of(part, state[key])
            state[key], scales[key] = codes.view(*shape, -1), of_blocks.view(*shape, -1)
    new = stored_names(model, state)
    for name, tensor in stored_names(model, scales).items():
        module = name.removesuffix(".weight")
        new[f"{module}.{form.codes}"] = new.pop(name)
        new[f"{module}.{form.scales}"] = tensor.view(torch.float8_e4m3fn)
    return new


def _replaced(name, old, new):
    """Returns the new tensor in the dtype of the old one, or the old one if there is no new one."""
    if new is None:
        return old
    if new.shape != old.shape:
        raise FormatError(f"{name}: {list(new.shape)}, the checkpoint has {list(old.shape)}")
    return new.to(old.dtype, copy=True).contiguous()
