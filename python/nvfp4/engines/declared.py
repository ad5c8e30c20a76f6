"""The formats that quantization_config declares for an engine's layers, some of which are fused."""

import re
from itertools import accumulate

from .._core import EntryList
from .._errors import UnsupportedError
from .._forms import FORMS
from .._quantization_config import ALGORITHMS, InputRule, is_nvfp4_group


def why_not(config):
    """Returns None if quantization_config declares NVFP4 and nothing else, otherwise what it declares."""
    method = str(config.get("quant_method", "")).lower()
    if method.startswith("modelopt"):
        config = config.get("quantization") or config
        algorithm = str(config.get("quant_algo", "")).upper()
        algorithms = {algorithm}
        if algorithm == "MIXED_PRECISION":
            algorithms = {str(layer.get("quant_algo", "")).upper()
                          for layer in config.get("quantized_layers", {}).values()}
        others = algorithms - set(ALGORITHMS)
        return f"quant_algo '{sorted(others)[0]}'" if others or not algorithms else None
    if method != "compressed-tensors":
        return f"quant_method '{method}'"
    groups = config.get("config_groups") or {}
    others = [name for name, group in groups.items() if not is_nvfp4_group(group)]
    if others or not groups:
        return f"config_groups '{others[0]}' of another kind" if others else "no config_groups"
    return None


class Declared:
    """The layers that are NVFP4, and their schemes."""

    def __init__(self, config):
        wrong = why_not(config)
        if wrong:
            raise UnsupportedError(f"quantization_config: {wrong}, must be NVFP4 of ModelOpt or "
                                   "compressed-tensors")
        method = "modelopt" if str(config["quant_method"]).startswith("modelopt") else "compressed-tensors"
        self.form = FORMS[method]
        self.config = {**(config.get("quantization") or config), "quant_method": method}
        ignored = self.config.get("ignore") or self.config.get("exclude_modules") or []
        self._take(list(ignored), self.config.get("quantized_layers") or {})

    def _take(self, ignored, layers):
        self.ignored, self.layers = ignored, layers
        patterns = [entry for entry in ignored if entry.startswith("re:") or "*" in entry or "?" in entry]
        self._names, self._patterns = set(ignored), EntryList(patterns, "quantization_config")
        self._quantizes_input = InputRule({**self.config, "quantized_layers": layers})

    @property
    def kv_cache(self):
        """True if the checkpoint has scales of an FP8 cache."""
        return bool(self.config.get("kv_cache_scheme") or self.config.get("kv_cache_quant_algo"))

    def rename(self, renamed_list):
        """Replaces names of the checkpoint by those of the engine. `renamed_list` maps a list of names."""
        # "a.b*" is a.b and all below; cut in two, the name at its front can be found.
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
        return "W4A4" if self._quantizes_input(name) else "W4A16"

    def mode(self, name, parts=()):
        """Returns 'W4A4', 'W4A16', or None if not quantized, for the layer `name` or the `parts` that it is fused
        from."""
        if self._is_ignored(name):
            return None
        base = name.rpartition(".")[0]
        names = [f"{base}.{part}".lstrip(".") for part in parts] or [name]
        modes = {self._mode(each) for each in names}
        if len(modes) > 1:
            raise UnsupportedError(f"{name}: {', '.join(names)} are of different kinds, must be one, since "
                                   "the engine fuses them")
        return modes.pop()
