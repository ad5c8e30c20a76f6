"""Quantizes a model layer by layer while calibration runs. No layer stays in memory."""

import json
import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import nvfp4

from .. import _core
from .._errors import InvalidValueError, UnsupportedError
from .statistics import read_later, write_tensors

CONFIGS = ("config.json", "hf_quant_config.json")
LIST = "nvfp4.files.json"  # list of files of a model that nvfp4 wrote


class OnePass:
    """The folder OUT.parts with a quantized folder for each layer. finish() assembles the output there, then renames it
    to OUT."""

    def __init__(self, model, out, options, resume):
        if options["format"] not in ("modelopt", "compressed-tensors"):
            raise UnsupportedError(f"format = {options['format']}: with quantize modelopt or compressed-tensors")
        self.model, self.out, self.options = Path(model), Path(out), options
        parts = Path(f"{out}.parts")
        self.layers, self.partial = parts / "layers", parts / "output"
        filled = self.out.exists() and any(self.out.iterdir())
        # Created before the output is renamed to OUT. Then OUT.parts is renamed.
        self.finished = parts / "finished"
        self.is_whole = resume and filled and not self.partial.exists() and (
            self.finished.exists() or Path(f"{out}.parts.done").exists())
        if filled and not self.is_whole:
            raise InvalidValueError(f"{out}: is not empty")

    def start(self):
        """Removes what an earlier run left."""
        for folder in (self.layers, self.partial):
            shutil.rmtree(folder, ignore_errors=True)

    def _quantize(self, name, tensors, statistics):
        """Writes a part of the model to a folder, quantized."""
        source, made = self.layers / f"{name}.source", self.layers / name
        for folder in (source, made):
            shutil.rmtree(folder, ignore_errors=True)
        source.mkdir(parents=True)
        shutil.copy(self.model / "config.json", source)
        write_tensors(source / "model.safetensors", {key: read_later(file, key) for key, file in tensors.items()}, {})
        given = dict(self.options)
        if statistics is None:
            given = dict(format=given["format"], method="mse")
        else:
            statistics.save(source / "statistics")
            given["statistics"] = source / "statistics"
        nvfp4.quantize_checkpoint(source, made, **given)
        shutil.rmtree(source)

    def block(self, i, tensors, statistics):
        self._quantize(f"{i}", tensors, statistics)

    def finish(self, blocks):
        """Assembles the output. May be interrupted anywhere and called again."""
        if not self.is_whole:
            self._assemble(blocks)
            if self.out.exists():
                self.out.rmdir()
            self.finished.touch()
            self.partial.rename(self.out)
        shutil.rmtree(self.layers, ignore_errors=True)

    def _assemble(self, blocks):
        names = [*(str(i) for i in range(len(blocks.names))), "rest"]
        files = {name: f"model-{number:05}-of-{len(names):05}.safetensors" for number, name in enumerate(names, 1)}
        if not (self.partial / files["rest"]).exists():
            self._quantize("rest", blocks.tensors[None], None)
        self.partial.mkdir(parents=True, exist_ok=True)
        index, total = {}, 0
        for name, file in files.items():
            if not (self.partial / file).exists():
                (self.layers / name / "model.safetensors").rename(self.partial / file)
            for tensor, count in spans(self.partial / file):
                index[tensor] = file
                total += count
        made = {"model.safetensors.index.json": json.dumps(
            {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}, indent=2)}
        for config in CONFIGS:
            found = [json.loads((self.layers / n / config).read_text()) for n in names
                     if (self.layers / n / config).exists()]
            if found:
                made[config] = json.dumps(united(found, index), indent=2) + "\n"
        for name, text in made.items():
            (self.partial / name).write_text(text)
        for other in self.model.iterdir():
            if other.is_file() and other.suffix != ".safetensors" and other.name not in (*made, LIST):
                shutil.copy(other, self.partial)
        _core.list_files(self.partial)


def spans(file):
    """Yields name and bytes of each tensor of a safetensors file."""
    with open(file, "rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    for name, about in header.items():
        if name != "__metadata__":
            first, end = about["data_offsets"]
            yield name, end - first


def united(configs, tensors, key=None):
    """Returns one configuration for those of the parts, which have `tensors` together. Lists of strings are united."""
    first = configs[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(k for c in configs for k in c)
        return {k: united([c[k] for c in configs if k in c], tensors, k) for k in keys}
    if isinstance(first, list) and all(isinstance(v, str) for c in configs for v in c):
        entries = list(dict.fromkeys(v for c in configs for v in c))
        return right_exclusions(entries, tensors) if key in ("ignore", "exclude_modules") else entries
    return first


def right_exclusions(entries, tensors):
    """Returns exclusions of the parts that are right for the whole: of those that match a quantized module of another
    part, only the names that they stand for are left."""
    scales = [name for name in tensors if name.endswith("weight_scale")]
    quantized = {re.sub(r"(?<=experts\.)\d+", "0", name[:-len("weight_scale")].rstrip("._")) for name in scales}
    wrong = [entry for entry in entries if any(matches(entry, name) for name in quantized)]
    right = [entry for entry in entries if entry not in wrong]
    expressions = any(name.endswith(".weight_packed") for name in tensors)
    for name in (name.removesuffix(".weight") for name in tensors if name.endswith(".weight")):
        if f"{name}.weight_scale" in tensors or any(matches(entry, name) for entry in right):
            continue
        if any(matches(entry, name) for entry in wrong):
            layer, dot, _ = name.partition(".experts.")
            experts = f"re:{re.escape(layer)}\\.experts\\..*" if expressions else f"{layer}.experts*"
            right.append(experts if dot else name)
    return right


def matches(entry, name):
    """Returns whether a loader may take the entry for an exclusion of the module."""
    if entry.startswith("re:"):
        return re.match(entry[len("re:"):], name) is not None
    return entry in name or any(fnmatchcase(text, entry) for text in (name, *name.split(".")))
