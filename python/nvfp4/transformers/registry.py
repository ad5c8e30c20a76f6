"""Registers this package with transformers, and restores what was registered before."""

from transformers.quantizers import auto

from .._quantization_config import is_nvfp4_group
from .config import Config, ModelOptConfig
from .quantizer import Nvfp4Quantizer, OnLoadQuantizer

_MISSING = object()
_before = None


def _all_nvfp4(config):
    groups = config.to_dict().get("config_groups") or {}
    return bool(groups) and all(is_nvfp4_group(group) for group in groups.values())


def _compressed_tensors(config, **options):
    """Returns the quantizer of this package for checkpoints whose groups are all NVFP4, otherwise the one that was
    registered."""
    if _all_nvfp4(config) and not getattr(config, "dequantize", False):
        return Nvfp4Quantizer(config, **options)
    return _before["compressed-tensors", "quantizer"](config, **options)


def register():
    """Registers the quantizers and configurations; called when nvfp4.transformers is imported."""
    global _before
    if _before is not None:
        return
    _before = {}
    for method, kind, mapping, entry in (
            ("modelopt", "config", auto.AUTO_QUANTIZATION_CONFIG_MAPPING, ModelOptConfig),
            ("modelopt", "quantizer", auto.AUTO_QUANTIZER_MAPPING, Nvfp4Quantizer),
            ("nvfp4_on_load", "config", auto.AUTO_QUANTIZATION_CONFIG_MAPPING, Config),
            ("nvfp4_on_load", "quantizer", auto.AUTO_QUANTIZER_MAPPING, OnLoadQuantizer),
            ("compressed-tensors", "quantizer", auto.AUTO_QUANTIZER_MAPPING, _compressed_tensors)):
        _before[method, kind] = mapping.get(method, _MISSING)
        mapping[method] = entry


def unregister():
    """Restores what was registered before. Loaded models stay as they are."""
    global _before
    if _before is None:
        return
    mappings = {"config": auto.AUTO_QUANTIZATION_CONFIG_MAPPING, "quantizer": auto.AUTO_QUANTIZER_MAPPING}
    for (method, kind), entry in _before.items():
        if entry is _MISSING:
            del mappings[kind][method]
        else:
            mappings[kind][method] = entry
    _before = None
