"""Registers this package with transformers, and restores what was registered before."""

from transformers.quantizers import auto

from .._entries import Entries
from .._quantization_config import is_loaded_by_ours
from .config import ModelOptConfig, Nvfp4Config
from .quantizer import Nvfp4Quantizer, OnLoadQuantizer


def _compressed_tensors(config, **options):
    """Returns our quantizer for checkpoints with NVFP4, alone or beside FP8; else the one that was registered."""
    if is_loaded_by_ours(config.to_dict()) and not getattr(config, "dequantize", False):
        return Nvfp4Quantizer(config, **options)
    return _entries.before(auto.AUTO_QUANTIZER_MAPPING, "compressed-tensors")(config, **options)


_entries = Entries(
    (auto.AUTO_QUANTIZATION_CONFIG_MAPPING, "modelopt", ModelOptConfig),
    (auto.AUTO_QUANTIZER_MAPPING, "modelopt", Nvfp4Quantizer),
    (auto.AUTO_QUANTIZATION_CONFIG_MAPPING, "nvfp4_on_load", Nvfp4Config),
    (auto.AUTO_QUANTIZER_MAPPING, "nvfp4_on_load", OnLoadQuantizer),
    (auto.AUTO_QUANTIZER_MAPPING, "compressed-tensors", _compressed_tensors))
#: register() runs when nvfp4.transformers is imported.
register, unregister, is_registered = _entries.register, _entries.unregister, _entries.is_registered
