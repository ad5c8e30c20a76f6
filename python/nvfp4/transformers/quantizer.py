"""The quantizer that transformers calls while it loads an NVFP4 checkpoint."""

import json
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
from transformers.quantizers.base import HfQuantizer

from .. import _core, _gemm
from .._checkpoint import quantize_checkpoint
from .._errors import FormatError, UnsupportedError
from .._forms import FORMS
from .._quantization_config import Schemes
from ..torch.modules import STACKS, Nvfp4Experts, Nvfp4Linear, fuse, pack
from .config import ModelOptConfig
from .conversions import check_stack, expert_converters, sources_of
from .fp8 import Fp8Linear, Fp8Weight
from .scan import quantized_weights


class ParameterNames:
    """Maps weights of a checkpoint to parameters of a model by transformers' conversions."""

    def __init__(self, model):
        mapping = get_model_conversion_mapping(model)
        self._renamings = [one for one in mapping if isinstance(one, WeightRenaming)]
        self._converters = [one for one in mapping if isinstance(one, WeightConverter)]
        self._by_pattern = {p: one for one in self._converters for p in one.source_patterns}
        self._prefix, self._state = model.base_model_prefix, model.state_dict()

    def __call__(self, module):
        """Returns (parameter name, its converter or None), or None if the model has no such parameter."""
        name, pattern = rename_source_key(f"{module}.weight", self._renamings, self._converters,
                                          self._prefix, self._state)
        if name not in self._state:
            return None
        return name, self._by_pattern.get(pattern)


def _put(model, name, module):
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def replace_linear(model, name, module, weight, form, quantizes_input):
    """Replaces the Linear `name` of a model by one for `weight`, which the checkpoint has for `module`. Raises
    UnsupportedError or FormatError if the weight does not fit."""
    linear = model.get_submodule(name)
    if not isinstance(linear, nn.Linear) or type(linear).forward is not nn.Linear.forward:
        raise UnsupportedError(f"{module} is quantized, and a {type(linear).__name__} of the model, must be a Linear")
    if (linear.out_features, linear.in_features) != (weight.rows, weight.cols):
        raise FormatError(f"{module}: [{weight.rows}, {weight.cols}], the model has "
                          f"[{linear.out_features}, {linear.in_features}]")
    if isinstance(weight, Fp8Weight):
        made = Fp8Linear(weight, linear.bias, next(model.parameters()).dtype, module)
    else:
        made = Nvfp4Linear(form, module, weight.rows, weight.cols, linear.bias, quantizes_input(module),
                           weight.has_input_scale)
    _put(model, name, made)


def check_devices(device_map, dtype):
    """Raises UnsupportedError or TypeError if a device has no kernels for activations of `dtype`. Runs before anything
    is loaded."""
    wanted = device_map.values() if isinstance(device_map, dict) else [device_map]
    for name in set(wanted):
        if str(name) == "meta":
            continue  # nothing is computed there
        if name in (None, "disk"):
            name = "cpu"
        elif name in ("auto", "balanced", "balanced_low_0", "sequential"):
            name = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.device("cuda", name) if isinstance(name, int) else torch.device(name)
        size = _core.packed_bytes(1, 64, 64, "tensor", device.type == "cuda")
        one = _gemm.PackedWeights(torch.zeros(size, dtype=torch.uint8, device=device), 64, 64)
        _gemm.plan_gemm(one, 1, x_dtype=dtype, out_dtype=dtype)


class Nvfp4Quantizer(HfQuantizer):
    """Loads packed weights of ModelOpt or compressed-tensors as they are."""

    def __init__(self, quantization_config, **options):
        super().__init__(quantization_config, **options)
        method = quantization_config.quant_method
        self.config = quantization_config.to_dict()
        self.form = FORMS[getattr(method, "value", method)]
        self._stacks = set()

    @property
    def is_trainable(self):
        return True

    @property
    def is_compileable(self):
        return True

    def is_serializable(self):
        return True

    def validate_environment(self, device_map=None, **others):
        self._device_map = device_map

    def update_dtype(self, dtype):
        check_devices(self._device_map, dtype)
        return dtype

    def _process_model_before_weight_loading(self, model, checkpoint_files=None, **others):
        if not checkpoint_files:
            raise UnsupportedError("NVFP4 weights are read from the files of a checkpoint, and there are "
                                   "none")
        weights, in_fp8 = quantized_weights(checkpoint_files, self.form)
        self._quantizes_input = Schemes(self.config).quantizes_input
        names = ParameterNames(model)
        tied = getattr(model, "all_tied_weights_keys", None) or {}
        tied = {*tied.keys(), *tied.values()}
        stacks = defaultdict(dict)
        for module, weight in (weights | in_fp8).items():
            found = names(module)
            if found is None:
                continue  # transformers reports parts that the model class leaves out
            name, converter = found
            if name in tied:
                raise UnsupportedError(f"{module} is quantized, and the model ties it to another matrix of the "
                                       "vocabulary")
            if module in in_fp8 and converter is not None:
                raise UnsupportedError(f"{module} is FP8, and one of stacked experts, must be NVFP4")
            if converter is None:
                replace_linear(model, name.removesuffix(".weight"), module, weight, self.form, self._quantizes_input)
            else:
                check_stack(converter)
                stacks[name][module] = weight
                self._stacks.add(sources_of(converter))
        self._replace_experts(model, stacks)
        self._dtypes = {name: p.dtype for name, p in model.named_parameters()}

    def _replace_experts(self, model, stacks):
        layers = defaultdict(dict)
        for name, weights in stacks.items():
            owner, _, parameter = name.rpartition(".")
            layers[owner][parameter] = weights
        classes = {type(model.get_submodule(owner)) for owner in layers}
        others = [n for n, m in model.named_modules() if type(m) in classes and n not in layers]
        if others:
            raise UnsupportedError(f"{others[0]} is not quantized, {next(iter(layers))} is")
        for owner, parts in layers.items():
            self._replace_stack(model.get_submodule(owner), owner, parts)

    def _replace_stack(self, experts, owner, parts):
        if set(parts) != set(STACKS) or not Nvfp4Experts.takes(experts):
            raise UnsupportedError(f"{owner}: a {type(experts).__name__}, whose experts are not gate_up_proj "
                                   "[E, 2·I, H] and down_proj [E, H, I] without biases")
        count = experts.gate_up_proj.shape[0]
        for parameter, weights in parts.items():
            expected = getattr(experts, parameter).shape
            halves = 2 if parameter == "gate_up_proj" else 1
            if len(weights) != count * halves:
                raise FormatError(f"{owner}.{parameter}: {len(weights)} NVFP4 weights, must be "
                                  f"{count * halves}, of {count} experts")
            for module, w in weights.items():
                if (w.rows * halves, w.cols) != tuple(expected[1:]):
                    raise FormatError(f"{module}: [{w.rows}, {w.cols}], the model has "
                                      f"[{expected[1] // halves}, {expected[2]}]")
        everything = {m: w for weights in parts.values() for m, w in weights.items()}
        modes = {self._quantizes_input(module) for module in everything}
        if len(modes) != 1:
            raise UnsupportedError(f"{owner}: some experts are W4A4 and some W4A16, must be one")
        # If one input scale is missing, inputs of all experts are measured in every call.
        measured = all(w.has_input_scale for w in everything.values())
        Nvfp4Experts.take_over(experts, self.form, owner, modes.pop(), measured)

    def update_weight_conversions(self, weight_conversions, model=None):
        updated = []
        for one in weight_conversions:
            if isinstance(one, WeightConverter) and sources_of(one) in self._stacks:
                updated += expert_converters(one, self.form)
            else:
                updated.append(one)
        return updated

    def _process_model_after_weight_loading(self, model, **others):
        for name, p in model.named_parameters():
            if p.dtype != self._dtypes.get(name, p.dtype):
                # transformers 5.17 leaves renamed parameters in the dtype of the checkpoint.
                p.data = p.data.to(self._dtypes[name])
        if any(b.is_meta for b in model.buffers()):
            return model  # nothing to pack
        fuse(model)
        return pack(model)


class OnLoadQuantizer(Nvfp4Quantizer):
    """Quantizes the files of a BF16 model and loads the result."""

    def __init__(self, quantization_config, **options):
        HfQuantizer.__init__(self, quantization_config, **options)
        if self.pre_quantized:
            raise UnsupportedError("the model is quantized already, must be BF16, FP16 or FP32 for Nvfp4Config")
        self._stacks, self._folder = set(), None

    def _process_model_before_weight_loading(self, model, checkpoint_files=None, **others):
        files = [Path(file) for file in checkpoint_files or ()]
        if not files or any(f.suffix != ".safetensors" or not f.name.startswith("model") for f in files):
            raise UnsupportedError(f"{files[0] if files else 'no file'}: must be model.safetensors, or shards "
                                   "of it, to be quantized")
        to = self.quantization_config.keep
        if to is None:
            self._folder = tempfile.TemporaryDirectory(prefix="nvfp4-")
            to = Path(self._folder.name) / "model"
        quantize_checkpoint(files[0].parent, to, **self.quantization_config.options)
        self.config = json.loads((Path(to) / "config.json").read_text())["quantization_config"]
        self.quantization_config = ModelOptConfig(**self.config)
        self.form, self.pre_quantized = FORMS["modelopt"], True
        model.quantization_method = "modelopt"
        # transformers reads the files of this list next.
        checkpoint_files[:] = sorted(map(str, Path(to).glob("*.safetensors")))
        super()._process_model_before_weight_loading(model, checkpoint_files)

    def _process_model_after_weight_loading(self, model, **others):
        model = super()._process_model_after_weight_loading(model, **others)
        if self._folder is not None:
            self._folder.cleanup()
        return model
