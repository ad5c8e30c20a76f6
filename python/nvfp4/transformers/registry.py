"""Registers this package with transformers, and restores what was registered before."""

from transformers.quantizers import auto

from .._quantization_config import is_nvfp4_group
from .config import Config, ModelOptConfig
from .quantizer import Nvfp4Quantizer, OnLoadQuantizer

_MISSING = object()
_before = None


def _is_read(config):
    """Returns whether some groups are NVFP4 and all others FP8 or MXFP8."""
    groups = list((config.to_dict().get("config_groups") or {}).values())
    others = [(group.get("weights") or {}) for group in groups if not is_nvfp4_group(group)]
    kinds = [(w.get("num_bits"), getattr(w.get("type"), "value", w.get("type"))) for w in others]
    return len(others) < len(groups) and all(kind == (8, "float") for kind in kinds)


def _compressed_tensors(config, **options):
    """Returns our quantizer for checkpoints with NVFP4, alone or beside FP8; else the one that was registered."""
    if _is_read(config) and not getattr(config, "dequantize", False):
        return Nvfp4Quantizer(config, **options)
    return _before["compressed-tensors", "quantizer"](config, **options)


def is_registered():
    """Reports whether transformers has our quantizers."""
    return _before is not None


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
