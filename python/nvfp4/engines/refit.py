"""New 16-bit weights for a model that an engine serves in NVFP4, such as a trainer sends after each step."""

import json
from collections import defaultdict
from pathlib import Path

import torch
from safetensors import safe_open

from .. import _core
from .._errors import FormatError, ShapeError, UnsupportedError
from .._quantization_config import Schemes
from .._quantize import amax, global_scales, known_method
from ..torch.weights import quantized


class _Served:
    """The tensors of a checkpoint: which file has each, and the modules that are quantized."""

    def __init__(self, folder):
        try:
            config = Path(folder, "config.json").read_text(encoding="utf-8")
            quantization = json.loads(config).get("quantization_config")
        except (OSError, ValueError, AttributeError) as wrong:
            raise FormatError(f"{folder}: config.json cannot be read: {wrong}") from None
        if not quantization:
            raise FormatError(f"{folder}: config.json has no quantization_config, must be an NVFP4 checkpoint")
        self.form = Schemes(quantization).form
        self.files = {}
        for file in sorted(Path(folder).glob("*.safetensors")):
            with safe_open(file, "pt") as tensors:
                self.files.update(dict.fromkeys(tensors.keys(), file))
        end = f".{self.form.global_scale}"
        modules = [name.removesuffix(end) for name in self.files if name.endswith(end)]
        self.group_of = dict(zip(modules, _core.fuse_keys(modules, config)))
        self.experts = {stack for stack, last in (module.rpartition(".")[0].rpartition(".")[::2] for module in modules)
                        if last.isdigit() and stack.endswith("experts")}
        self.waiting = defaultdict(dict)  #: key of a group -> module -> weight
        self.missing = defaultdict(set)
        for module, key in self.group_of.items():
            self.missing[key].add(module)

    def shape(self, name):
        with safe_open(self.files[name], "pt") as tensors:
            return tensors.get_slice(name).get_shape()

    def has_experts_below(self, name):
        """Reports whether experts of the checkpoint are single and `name` is a stack of them."""
        stack, _, last = name.removesuffix(".weight").rpartition(".")
        return stack in self.experts and not last.isdigit()

    def input_scale(self, module, device):
        """Yields (name, tensor) of the stored input scale, if there is one."""
        name = f"{module}.{self.form.input_scale}"
        if name in self.files:
            with safe_open(self.files[name], "pt") as tensors:
                yield name, tensors.get_tensor(name).to(device)


def quantize_weights(weights, checkpoint, method="mse"):
    """Yields (name, tensor) of an NVFP4 checkpoint with new values, for example for reload_weights() of vLLM's workers.

    weights     (name, tensor) of the whole model in 16 or 32 bits, named as before quantizing, on any device; of layers
                that engines fuse all parts come, and stay unchanged, before the first is yielded
    checkpoint  the folder that the engine serves. It says which layers are quantized and how they are stored; input
                scales stay what they are there
    method      as of nvfp4.quantize: those without statistics
    The bytes are those of `nvfp4 quantize --method METHOD`. Other weights pass unchanged. Raises ShapeError,
    UnsupportedError for a weight that is quantized in another format or stacked, and FormatError at the end if parts
    of a fused layer are missing.
    """
    known_method(method)
    served = _Served(checkpoint)
    for name, weight in weights:
        module = name.removesuffix(".weight")
        if served.has_experts_below(name):
            raise UnsupportedError(f"{name}: a stack of experts, must be one weight for each expert, named as in {checkpoint}")
        if module not in served.group_of or module == name:
            if f"{module}.weight_scale" in served.files:
                raise UnsupportedError(f"{name}: {checkpoint} stores it in another format than NVFP4, must be NVFP4 or 16 bits")
            yield name, weight
            continue
        rows, half = served.shape(f"{module}.{served.form.codes}")
        if list(weight.shape) != [rows, 2 * half]:
            raise ShapeError(f"{name}: has shape {list(weight.shape)}, must be {[rows, 2 * half]} as in {checkpoint}")
        key = served.group_of[module]
        if module not in served.missing[key]:
            raise FormatError(f"{name} came twice, must come once")
        served.waiting[key][module] = weight.detach()
        served.missing[key].discard(module)
        if not served.missing[key]:
            yield from _group(served, served.waiting.pop(key), method)
    for key, parts in served.waiting.items():
        raise FormatError(f"weights of {', '.join(sorted(served.missing[key]))} did not come, and share a global scale with "
                          f"{', '.join(parts)}")


def _group(served, parts, method):
    """Yields the tensors of weights that share a global scale."""
    form, device = served.form, next(iter(parts.values())).device
    scale = global_scales(torch.cat([amax(weight) for weight in parts.values()]), method)
    for module, weight in parts.items():
        q = quantized(weight, method, scale)
        stored = scale[form.divisors].reshape(()).clone()
        for name, tensor in zip(form.names, (q.codes, q.scales, stored.reshape(form.scalar))):
            yield f"{module}.{name}", tensor
        yield from served.input_scale(module, device)
