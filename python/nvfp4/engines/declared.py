"""The formats that quantization_config declares for an engine's layers, some of which are fused."""

import re
from itertools import accumulate

from .._core import EntryList
from .._errors import UnsupportedError
from .._forms import FORMS
from .._quantization_config import ALGORITHMS, OTHER, Schemes, scheme_of_group


def schemes_in(config):
    """Returns the schemes of a quantization_config, "W4A4", "W4A16", OTHER; none if it is of another method."""
    method = str(config.get("quant_method", "")).lower()
    if method.startswith("modelopt"):
        config = config.get("quantization") or config
        algorithm = str(config.get("quant_algo", "")).upper()
        algorithms = [algorithm]
        if algorithm == "MIXED_PRECISION":
            algorithms = [str(layer.get("quant_algo", "")).upper() for layer in config.get("quantized_layers", {}).values()]
        return {ALGORITHMS.get(each, OTHER) for each in algorithms}
    if method != "compressed-tensors":
        return set()
    return {scheme_of_group(group) for group in (config.get("config_groups") or {}).values()}


def why_not(config):
    """Returns what quantization_config declares if it has no NVFP4, otherwise None."""
    if schemes_in(config) - {OTHER}:
        return None
    method = config.get("quant_method", "")
    algorithm = (config.get("quantization") or config).get("quant_algo")
    return f"quant_algo '{algorithm}'" if algorithm else f"quant_method '{method}' without a group of NVFP4"


class Declared:
    """The layers that are NVFP4, and their schemes."""

    def __init__(self, config):
        wrong = why_not(config)
        if wrong:
            raise UnsupportedError(f"quantization_config: {wrong}, must have NVFP4 of ModelOpt or "
                                   "compressed-tensors")
        self.mixed = OTHER in schemes_in(config)
        method = "modelopt" if str(config["quant_method"]).startswith("modelopt") else "compressed-tensors"
        self.form = FORMS[method]
        self.config = {**(config.get("quantization") or config), "quant_method": method}
        ignored = self.config.get("ignore") or self.config.get("exclude_modules") or []
        self._take(list(ignored), self.config.get("quantized_layers") or {})

    def _take(self, ignored, layers):
        self.ignored, self.layers = ignored, layers
        patterns = [entry for entry in ignored if entry.startswith("re:") or "*" in entry or "?" in entry]
        self._names, self._patterns = set(ignored), EntryList(patterns, "quantization_config")
        self._schemes = Schemes({**self.config, "quantized_layers": layers})

    @property
    def kv_cache(self):
        """True if the checkpoint has scales of an FP8 cache."""
        return bool(self.config.get("kv_cache_scheme") or self.config.get("kv_cache_quant_algo"))

    def rename(self, renamed_list):
        """Replaces names of the checkpoint by those of the engine. `renamed_list` maps a list of names."""
        # "a.b*" means a.b and all below. As two entries, the name a.b can be renamed.
        split = [n for name in self.ignored
                 for n in ((name[:-1], name[:-1] + ".*") if re.search(r"[^.]\*$", name) else (name,))]
        self._take(renamed_list(split), dict(zip(renamed_list(list(self.layers)), self.layers.values())))

    def _is_ignored(self, name):
        parents = accumulate(name.split("."), "{}.{}".format)
        return not self._names.isdisjoint(parents) or self._patterns.first(name) is not None

    def _mode(self, name):
        if self._is_ignored(name):
            return None
        if self.layers and name not in self.layers and self.config.get("quant_algo") == "MIXED_PRECISION":
            return None
        return self._schemes(name)

    def mode(self, name, parts=()):
        """Returns 'W4A4', 'W4A16', OTHER, or None if it is not quantized, for the layer `name` or the layers that
        were fused into it, `parts`."""
        if self._is_ignored(name):
            return None
        base = name.rpartition(".")[0]
        names = [f"{base}.{part}".lstrip(".") for part in parts] or [name]
        modes = {self._mode(each) for each in names}
        if len(modes) > 1:
            raise UnsupportedError(f"{name}: {', '.join(names)} are of different kinds, must be one, since "
                                   "the engine fuses them")
        return modes.pop()
