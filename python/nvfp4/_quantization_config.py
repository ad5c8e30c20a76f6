"""Reads a checkpoint's quantization_config."""

from ._core import EntryList
from ._errors import FormatError, UnsupportedError

#: Algorithms of ModelOpt that are NVFP4.
ALGORITHMS = ("NVFP4", "W4A16_NVFP4")


def is_nvfp4_group(group):
    """Reports whether `group`, a member of config_groups, describes NVFP4 weights."""
    weights = (group or {}).get("weights") or {}
    kind = getattr(weights.get("type"), "value", weights.get("type"))
    return (weights.get("num_bits"), kind, weights.get("group_size")) == (4, "float", 16)


class InputRule:
    """A function of a module name. It returns whether quantization_config declares the module as W4A4."""

    def __init__(self, config):
        self._config, self._general, targets, self._inputs = config, None, [], []
        self._modelopt = config.get("quant_method") == "modelopt"
        for group in () if self._modelopt else config.get("config_groups", {}).values():
            if not is_nvfp4_group(group):
                continue
            inputs = group.get("input_activations") is not None
            for target in group["targets"]:
                if target != "Linear":
                    targets.append(target)
                    self._inputs.append(inputs)
                elif self._general is None:
                    self._general = inputs
        self._targets = EntryList(targets, "quantization_config")

    def __call__(self, module):
        if self._modelopt:
            return self._of_modelopt(module)
        found = self._targets.first(module)
        inputs = self._general if found is None else self._inputs[found]
        if inputs is None:
            raise FormatError(f"{module} is NVFP4, and no target of config_groups names it")
        return inputs

    def _of_modelopt(self, module):
        algorithm = self._config.get("quant_algo")
        layer = self._config.get("quantized_layers", {}).get(module)
        if layer:
            algorithm = layer.get("quant_algo", algorithm)
        if algorithm not in ALGORITHMS:
            raise UnsupportedError(f"quant_algo '{algorithm}' of {module}, must be NVFP4 or W4A16_NVFP4")
        return algorithm == "NVFP4"
