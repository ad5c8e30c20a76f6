"""What the quantization_config of a checkpoint says about its modules."""

import re

from ._errors import FormatError, UnsupportedError

#: Algorithms of ModelOpt that are NVFP4.
ALGORITHMS = ("NVFP4", "W4A16_NVFP4")


def _target_matches(target, module):
    if target.startswith("re:"):
        return re.match(target[3:], module) is not None
    return target == "Linear" or target == module


def _modelopt_quantizes_input(config, module):
    algorithm = config.get("quant_algo")
    layer = config.get("quantized_layers", {}).get(module)
    if layer:
        algorithm = layer.get("quant_algo", algorithm)
    if algorithm not in ALGORITHMS:
        raise UnsupportedError(f"quant_algo '{algorithm}' of {module}, must be NVFP4 or W4A16_NVFP4")
    return algorithm == "NVFP4"


def is_nvfp4_group(group):
    """Whether a group of config_groups, a dict, is of NVFP4 weights."""
    weights = (group or {}).get("weights") or {}
    kind = getattr(weights.get("type"), "value", weights.get("type"))
    return (weights.get("num_bits"), kind, weights.get("group_size")) == (4, "float", 16)


def _groups_quantize_input(config, module):
    for group in config.get("config_groups", {}).values():
        if is_nvfp4_group(group) and any(_target_matches(t, module) for t in group["targets"]):
            return group.get("input_activations") is not None
    raise FormatError(f"{module} is NVFP4, and no target of config_groups names it")


def quantizes_input(config, module):
    """Whether `config`, the quantization_config, declares a module as W4A4."""
    if config.get("quant_method") == "modelopt":
        return _modelopt_quantizes_input(config, module)
    return _groups_quantize_input(config, module)
