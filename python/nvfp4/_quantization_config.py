"""Reads a checkpoint's quantization_config."""

from ._core import EntryList
from ._errors import FormatError, UnsupportedError

#: Algorithms of ModelOpt that are NVFP4, and the scheme of each.
ALGORITHMS = {"NVFP4": "W4A4", "W4A16_NVFP4": "W4A16"}
#: The scheme of a module that is quantized in another format.
OTHER = "other"


def is_nvfp4_group(group):
    """Reports whether `group`, a member of config_groups, describes NVFP4 weights."""
    weights = (group or {}).get("weights") or {}
    kind = getattr(weights.get("type"), "value", weights.get("type"))
    return (weights.get("num_bits"), kind, weights.get("group_size")) == (4, "float", 16)


def scheme_of_group(group):
    """Returns "W4A4", "W4A16" or OTHER for a group of config_groups."""
    if not is_nvfp4_group(group):
        return OTHER
    return "W4A16" if group.get("input_activations") is None else "W4A4"


def is_loaded_by_ours(config):
    """Reports whether quantization_config describes packed NVFP4 weights, alone or beside FP8."""
    if config.get("quant_method") == "modelopt":
        layers = [config, *(config.get("quantized_layers") or {}).values()]
        return any(str(layer.get("quant_algo")).upper() in ALGORITHMS for layer in layers)
    groups = list((config.get("config_groups") or {}).values())
    others = [(group.get("weights") or {}) for group in groups if not is_nvfp4_group(group)]
    kinds = [(w.get("num_bits"), getattr(w.get("type"), "value", w.get("type"))) for w in others]
    return len(others) < len(groups) and all(kind == (8, "float") for kind in kinds)


class Schemes:
    """The scheme of each module by quantization_config: "W4A4", "W4A16" or OTHER. A function of the module name."""

    def __init__(self, config):
        self._config, self._general, targets, self._of_target = config, None, [], []
        self._modelopt = config.get("quant_method") == "modelopt"
        for group in () if self._modelopt else config.get("config_groups", {}).values():
            scheme = scheme_of_group(group)
            for target in group.get("targets") or ():
                if target != "Linear":
                    targets.append(target)
                    self._of_target.append(scheme)
                elif self._general is None:
                    self._general = scheme
        self._targets = EntryList(targets, "quantization_config")

    def __call__(self, module):
        """Returns the scheme of a module that is not ignored. Raises FormatError if no target names it."""
        if self._modelopt:
            layer = self._config.get("quantized_layers", {}).get(module) or {}
            algorithm = layer.get("quant_algo", self._config.get("quant_algo"))
            return ALGORITHMS.get(str(algorithm).upper(), OTHER)
        found = self._targets.first(module)
        scheme = self._general if found is None else self._of_target[found]
        if scheme is None:
            raise FormatError(f"{module} is quantized, and no target of config_groups names it")
        return scheme

    def quantizes_input(self, module):
        """Returns whether a module with the tensors of NVFP4 is W4A4. Raises UnsupportedError if it is declared in
        another way."""
        scheme = self(module)
        if scheme == OTHER:
            layer = self._config.get("quantized_layers", {}).get(module) or self._config
            raise UnsupportedError(f"quant_algo '{layer.get('quant_algo')}' of {module}, must be NVFP4 or W4A16_NVFP4")
        return scheme == "W4A4"
