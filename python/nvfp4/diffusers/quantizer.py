"""The quantizer that diffusers calls while it loads an NVFP4 checkpoint, and its registration."""

import copy
import enum

from diffusers.quantizers import auto
from diffusers.quantizers.base import DiffusersQuantizer
from diffusers.quantizers.quantization_config import QuantizationConfigMixin

from .._entries import Entries
from .._errors import UnsupportedError
from .._forms import FORMS
from .._quantization_config import Schemes, is_loaded_by_ours
from ..torch.modules import PackedModule, pack
from ..transformers.quantizer import check_devices, replace_linear
from ..transformers.scan import quantized_weights

_Method = enum.Enum("_Method", {method: method for method in FORMS}, type=str)


class CheckpointConfig(QuantizationConfigMixin):
    """The quantization_config of a checkpoint with NVFP4 weights, unchanged."""

    def __init__(self, **config):
        self.quant_method = _Method(config["quant_method"])  # diffusers reads its .value
        self._config = config

    def to_dict(self):
        return copy.deepcopy(self._config)

    to_diff_dict = to_dict


class Nvfp4Quantizer(DiffusersQuantizer):
    """Loads NVFP4 weights, and FP8 weights beside them, of ModelOpt and compressed-tensors."""

    use_keep_in_fp32_modules = True
    is_serializable = is_trainable = is_compileable = True

    def __init__(self, quantization_config, **options):
        super().__init__(quantization_config, **options)
        if not self.pre_quantized:
            raise UnsupportedError("the model is not quantized, and diffusers cannot quantize it to NVFP4; run nvfp4 quantize")
        self.form = FORMS[quantization_config.quant_method.value]

    def maybe_update_loaded_keys(self, loaded_keys, checkpoint_files):
        self._files = checkpoint_files
        return loaded_keys

    def _process_model_before_weight_loading(self, model, device_map=None, **others):
        check_devices(device_map, next(model.parameters()).dtype)
        weights, in_fp8 = quantized_weights(self._files, self.form)
        schemes, modules = Schemes(self.quantization_config.to_dict()), dict(model.named_modules())
        for name, weight in (weights | in_fp8).items():
            if name in modules:  # diffusers reports the others
                replace_linear(model, name, name, weight, self.form, schemes.quantizes_input)

    def check_if_quantized_param(self, model, param_value, param_name, state_dict, **others):
        owner, _, name = param_name.rpartition(".")
        module = model.get_submodule(owner)
        return isinstance(module, PackedModule) and name in module._buffers

    def create_quantized_param(self, model, param_value, param_name, target_device, state_dict, *others, **options):
        # param_value has lost bits, since diffusers casts scales to the dtype of the model.
        owner, _, name = param_name.rpartition(".")
        buffers = model.get_submodule(owner)._buffers
        held = buffers[name]
        buffers[name] = state_dict[param_name].to(target_device, held.dtype).reshape(held.shape)

    def _process_model_after_weight_loading(self, model, **others):
        return model if any(b.is_meta for b in model.buffers()) else pack(model)


class _ConfigOf:
    """Makes the configurations of a quant_method: ours for NVFP4, those of diffusers for everything else."""

    def __init__(self, method):
        self.method = method

    def from_dict(self, config, **options):
        if is_loaded_by_ours(config):
            return CheckpointConfig.from_dict(config, **options)
        before = _entries.before(auto.AUTO_QUANTIZATION_CONFIG_MAPPING, self.method)
        if before is None:
            raise UnsupportedError(f"quant_method '{self.method}' without NVFP4 weights, which diffusers does not read")
        return before.from_dict(config, **options)


def _quantizer(config, **options):
    """Returns our quantizer for our configurations, else the one that was registered."""
    if isinstance(config, CheckpointConfig):
        return Nvfp4Quantizer(config, **options)
    return _entries.before(auto.AUTO_QUANTIZER_MAPPING, config.quant_method)(config, **options)


_entries = Entries(*[entry for method in FORMS for entry in (
    (auto.AUTO_QUANTIZATION_CONFIG_MAPPING, method, _ConfigOf(method)),
    (auto.AUTO_QUANTIZER_MAPPING, method, _quantizer))])
#: register() runs when nvfp4.diffusers is imported.
register, unregister = _entries.register, _entries.unregister
