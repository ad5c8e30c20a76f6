"""quantize_(): weights of a module become NVFP4 in place, as `nvfp4 quantize` makes them of its checkpoint."""

import json
import sys
import tempfile
import warnings
from collections import defaultdict
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Callable, Optional, Union

import torch
from torch import nn

from .. import _core
from .._checkpoint import quantize_checkpoint
from .._errors import Error, InvalidValueError, UnsupportedError
from .._quantize import amax, global_scales, known_method
from .modules import STACKS, Nvfp4Experts, Nvfp4Linear, fuse, pack
from .origins import Origins
from .weights import check_values, is_linear, is_transposed, matrix_of, quantizes_inputs

_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}


def quantize_(module: nn.Module, *, scheme: str = "w4a4", method: str = "mse",
              recipe: Optional[Union[str, PathLike]] = None,
              filter: Optional[Callable[[nn.Module, str], bool]] = None) -> dict[str, str]:
    """Quantizes the linear layers of a module in place, on its device: nn.Linear, stacked experts of transformers, and
    GPT-2's Conv1D.

    scheme, recipe  as of nvfp4.quantize_checkpoint. "w4a4" has an input scale of 1, so blocks of inputs below 0.006 become
            zero; "w4a16" leaves inputs as they are.
    method  as of nvfp4.quantize: those without statistics
    filter  a function filter(layer, name) that returns whether to quantize a layer. Without one the rules of
            `nvfp4 quantize` choose by the names of the model: output heads, routers and such stay, and layers that
            engines fuse share a global scale. The bytes are then those of the quantized checkpoint.
    Returns name -> reason of the linear layers that stay as they are. Layers that are quantized already are not among
    them. Raises InvalidValueError and UnsupportedError, and leaves the module as it was.
    """
    if recipe is not None and filter is not None:
        raise InvalidValueError("recipe and filter are given, must be one of them")
    known_method(method)
    if is_linear(module):
        raise UnsupportedError("module is a linear layer, which cannot replace itself; use Nvfp4Linear.from_linear(module)")
    quantizes_inputs(scheme)
    layers = layers_of(module)
    plan = _plan(module, layers, scheme, recipe, None if filter is None else {
        name for name, layer in layers.items() if filter(layer, name)})
    if not plan.layers:
        done = sum(isinstance(layer, (Nvfp4Linear, Nvfp4Experts)) for layer in module.modules())
        warnings.warn("no layer is quantized" + (f": {done} layers are quantized already" if done else ""), stacklevel=2)
    for name in plan.layers:  # before any is replaced
        for part in weights_of(layers[name]):
            check_values(f"{name}.{part}", getattr(layers[name], part).detach())
    scales = {}
    for key, names in plan.groups.items():
        largest = torch.cat([amax(matrix_of(layers[name])).cpu() for name in names])
        scales[key] = global_scales(largest, method)
    for name, key in plan.layers.items():
        layer = layers.pop(name)
        if key is None:
            Nvfp4Experts.quantize_in_place(layer, name, plan.quantize_input, method)
            continue
        parent, _, last = name.rpartition(".")
        setattr(module.get_submodule(parent), last, Nvfp4Linear.unpacked_from(
            layer, plan.quantize_input, method, scales[key], name))
    _leave_fast_paths(module)
    if hasattr(module, "config"):
        fuse(module)
    pack(module)
    return plan.kept | {name: "shares its weight with another module" for name, layer in module.named_modules()
                        if weights_of(layer) and name not in plan.kept}


def _leave_fast_paths(module):
    """Makes PyTorch's encoder layers call their linear layers, whose weights their fast path would read."""
    for layer in module.modules():
        if not any(isinstance(part, Nvfp4Linear) for part in layer.modules()):
            continue
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
        elif isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False


@dataclass
class _Plan:
    """The layers to quantize."""

    layers: dict  #: name -> key in `groups`; None: experts
    groups: dict  #: key -> names of the layers that share a global scale
    kept: dict  #: name of a layer that stays -> reason
    quantize_input: bool


def weights_of(layer):
    """Returns the names of the parameters of a layer that can be quantized; none if it is of another kind."""
    return ("weight",) if is_linear(layer) else tuple(STACKS) if Nvfp4Experts.takes(layer) else ()


def layers_of(module):
    """Returns name -> layer that can be quantized. Layers that share a weight with another module stay."""
    owners = defaultdict(set)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        owners[id(parameter)].add(name)

    found = {name: layer for name, layer in module.named_modules() if weights_of(layer)}
    return {name: layer for name, layer in found.items()
            if all(len(owners[id(getattr(layer, part))]) == 1 for part in weights_of(layer))}


def stored_names(module, tensors):
    """Returns name in the checkpoint -> tensor of parameters, as save_pretrained() of transformers splits and renames."""
    loading = sys.modules.get("transformers.core_model_loading")
    if loading is None or not isinstance(module, sys.modules["transformers"].PreTrainedModel):
        return dict(tensors)
    return loading.revert_weight_conversion(module, dict(tensors))


def _in_checkpoint(module, tensors):
    """Returns name in the checkpoint -> (tensor, names of its parameters) of the parameters in `tensors`, on the meta
    device."""
    with Origins(tensors) as origins:
        return {name: (tensor, origins.of(tensor)) for name, tensor in stored_names(module, tensors).items()}


def _dry_run(stored, config, **options):
    """Returns the report of quantize_checkpoint() for tensors without values, in a sparse file."""
    with tempfile.TemporaryDirectory(prefix="nvfp4-") as folder:
        model = Path(folder) / "model"
        model.mkdir()
        if config:
            (model / "config.json").write_text(config)
        header, end = {}, 0
        for name, tensor in stored.items():
            begin, end = end, end + tensor.numel() * tensor.element_size()
            header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        with open(model / "model.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
        try:
            return quantize_checkpoint(model, Path(folder) / "none", dry_run=True, **options)
        except Error as error:
            error.args = (str(error).replace(str(model), "module"), *error.args[1:])
            raise


def _plan(module, layers, scheme, recipe, chosen):
    """Returns the _Plan of `nvfp4 quantize`. `chosen`: names of the layers that a filter chose, or None."""
    conv1d = {f"{name}.weight" for name, layer in layers.items() if is_transposed(layer)}
    tables = {id(p) for layer in module.modules() if isinstance(layer, nn.Embedding) for p in layer.parameters()}
    stored = _in_checkpoint(module, {
        name: torch.empty(p.shape[::-1] if name in conv1d else p.shape, dtype=p.dtype, device="meta")
        for name, p in module.named_parameters() if p.dtype in _DTYPES and id(p) not in tables})
    # Without its configuration, a model with Conv1D is not one of the families whose checkpoints keep them.
    config = getattr(module, "config", None)
    config = config.to_json_string() if hasattr(config, "to_json_string") and not conv1d else ""
    layer_of = {f"{name}.{part}": name for name, layer in layers.items() for part in weights_of(layer)}
    names = defaultdict(list)  # layer -> its tensors in the checkpoint; None: those of no layer
    for name, (_, parameters) in stored.items():
        names[next(filter(None, map(layer_of.get, sorted(parameters))), None)].append(name)
    options = {} if recipe is None else {"recipe": recipe}
    if chosen is not None:
        options = {"include": [name for layer in chosen for name in names[layer]],
                   "ignore": [name for layer in names if layer not in chosen for name in names[layer]]}
    report = _dry_run({name: tensor for name, (tensor, _) in stored.items()}, config, scheme=scheme, **options)
    actions = {tensor["name"]: tensor["action"] for tensor in report["tensors"]}
    if "fp8" in actions.values():
        raise UnsupportedError(f"recipe = {recipe!r} makes some layers FP8, must have nvfp4 and keep alone")
    left = [name for name in names.pop(None, ()) if actions[name] == "quantized"]
    if left:
        warnings.warn(f"{len(left)} weights stay, such as {left[0]}: they are in no nn.Linear, Conv1D or stack of experts "
                      "that is read", stacklevel=3)
    quantized = {layer: None for layer, tensors in names.items() if all(actions[name] == "quantized" for name in tensors)}
    reasons = {tensor["name"]: tensor.get("reason", "") for tensor in report["tensors"]}
    kept = {layer: next(filter(None, map(reasons.get, tensors)), "") for layer, tensors in names.items()
            if layer not in quantized}
    plan = _Plan(quantized, defaultdict(list), kept, quantizes_inputs(report["scheme"]))
    linear = [layer for layer in plan.layers if is_linear(layers[layer])]
    for layer, key in zip(linear, _core.fuse_keys([names[layer][0].removesuffix(".weight") for layer in linear], config)):
        plan.layers[layer] = key
        plan.groups[key].append(layer)
    return plan
