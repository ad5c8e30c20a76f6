"""Reads a checkpoint's quantization_config."""

import re
from functools import cached_property
from itertools import accumulate

from ._core import EntryList
from ._errors import FormatError, UnsupportedError
from ._forms import FORMS

#: Algorithms of ModelOpt that are NVFP4, and the scheme of each.
ALGORITHMS = {"NVFP4": "W4A4", "W4A16_NVFP4": "W4A16"}
#: The scheme of a module that is quantized in another format.
OTHER = "other"


def _text(value):
    """Returns the text of an entry, which in the classes of compressed-tensors and transformers is an enum."""
    return getattr(value, "value", value)


def _weights(group):
    return (group or {}).get("weights") or {}


def _number_format(group):
    """Returns (bits, "float" or "int") of the weights of `group`."""
    return _weights(group).get("num_bits"), _text(_weights(group).get("type"))


def is_nvfp4_group(group):
    """Reports whether `group`, a member of config_groups, describes NVFP4 weights."""
    return (*_number_format(group), _weights(group).get("group_size")) == (4, "float", 16)


def scheme_of_group(group):
    """Returns "W4A4", "W4A16" or OTHER for a group of config_groups."""
    if not is_nvfp4_group(group):
        return OTHER
    return "W4A16" if group.get("input_activations") is None else "W4A4"


def _method(config):
    return str(_text(config.get("quant_method", ""))).lower()


def schemes_in(config):
    """Returns the schemes of a quantization_config, "W4A4", "W4A16", OTHER; none if it is of another method."""
    method = _method(config)
    if method.startswith("modelopt"):
        config = config.get("quantization") or config
        layers = [config]
        if str(config.get("quant_algo", "")).upper() == "MIXED_PRECISION":
            layers = (config.get("quantized_layers") or {}).values()
        return {ALGORITHMS.get(str(layer.get("quant_algo", "")).upper(), OTHER) for layer in layers}
    if method != "compressed-tensors":
        return set()
    return {scheme_of_group(group) for group in (config.get("config_groups") or {}).values()}


def unsupported_reason(config):
    """Returns what a quantization_config declares if nothing in it is NVFP4, otherwise None."""
    if schemes_in(config) - {OTHER}:
        return None
    algorithm = (config.get("quantization") or config).get("quant_algo")
    return f"quant_algo '{algorithm}'" if algorithm else f"quant_method '{_method(config)}' without a group of NVFP4"


def is_loaded_by_ours(config):
    """Reports whether quantization_config describes packed NVFP4 weights, alone or beside FP8."""
    groups = [group for group in (config.get("config_groups") or {}).values() if not is_nvfp4_group(group)]
    return not unsupported_reason(config) and all(_number_format(group) == (8, "float") for group in groups)


class Schemes:
    """The scheme of each module by quantization_config: "W4A4", "W4A16" or OTHER."""

    def __init__(self, config):
        self._modelopt = _method(config).startswith("modelopt")
        self.form = FORMS["modelopt" if self._modelopt else "compressed-tensors"]
        self.mixed = OTHER in schemes_in(config)  #: some layers are quantized in another format
        self._config = config = config.get("quantization") or config
        self._ignored = list(config.get("ignore") or config.get("exclude_modules") or [])
        self._layers = config.get("quantized_layers") or {}
        self._general, targets, self._of_target = None, [], []
        for group in () if self._modelopt else (config.get("config_groups") or {}).values():
            scheme = scheme_of_group(group)
            for target in (group or {}).get("targets") or ():
                if target != "Linear":
                    targets.append(target)
                    self._of_target.append(scheme)
                elif self._general is None:
                    self._general = scheme
        self._targets = EntryList(targets, "quantization_config")

    @property
    def kv_cache(self):
        """True if the checkpoint has scales of an FP8 cache."""
        return bool(self._config.get("kv_cache_scheme") or self._config.get("kv_cache_quant_algo"))

    def __call__(self, module):
        """Returns the scheme of a module that is not ignored. Raises FormatError if no target names it."""
        if self._modelopt:
            algorithm = self._layers.get(module, {}).get("quant_algo", self._config.get("quant_algo"))
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
            if not self._modelopt:
                raise UnsupportedError(f"{module} has NVFP4 weights, and its group in config_groups is of another format, "
                                       "must be NVFP4")
            layer = self._layers.get(module) or self._config
            raise UnsupportedError(f"quant_algo '{layer.get('quant_algo')}' of {module}, must be NVFP4 or W4A16_NVFP4")
        return scheme == "W4A4"

    def rename(self, renamed_list):
        """Replaces names of the checkpoint by those of an engine. `renamed_list` maps a list of names."""
        # "a.b*" means a.b and all below. As two entries, the name a.b can be renamed.
        split = [n for name in self._ignored
                 for n in ((name[:-1], name[:-1] + ".*") if re.search(r"[^.]\*$", name) else (name,))]
        self._ignored = renamed_list(split)
        self._layers = dict(zip(renamed_list(list(self._layers)), self._layers.values()))
        self.__dict__.pop("_ignoring", None)

    @cached_property
    def _ignoring(self):
        patterns = [entry for entry in self._ignored if entry.startswith("re:") or "*" in entry or "?" in entry]
        return set(self._ignored), EntryList(patterns, "quantization_config")

    def _is_ignored(self, module):
        names, patterns = self._ignoring
        parents = accumulate(module.split("."), "{}.{}".format)
        return not names.isdisjoint(parents) or patterns.first(module) is not None

    def _of_part(self, module):
        mixed = self._layers and self._config.get("quant_algo") == "MIXED_PRECISION"
        return None if self._is_ignored(module) or (mixed and module not in self._layers) else self(module)

    def of_layer(self, name, parts=()):
        """Returns the scheme of the layer `name`, or of the layers `parts` that were fused into it; None if it is not
        quantized."""
        if self._is_ignored(name):
            return None
        base = name.rpartition(".")[0]
        names = [f"{base}.{part}".lstrip(".") for part in parts] or [name]
        schemes = {self._of_part(each) for each in names}
        if len(schemes) > 1:
            raise UnsupportedError(f"{name}: {', '.join(names)} are of different kinds, must be one, since "
                                   "the engine fuses them")
        return schemes.pop()
