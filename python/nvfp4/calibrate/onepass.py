"""Quantizes a model layer by layer, as calibration goes through it: nothing of a layer stays in memory."""

import json
import shutil
from pathlib import Path

from safetensors.torch import save_file

import nvfp4

from .._errors import InvalidValueError, UnsupportedError

CONFIGS = ("config.json", "hf_quant_config.json")


class OnePass:
    """OUT.layers has a quantized folder for each layer; finish() makes OUT of them."""

    def __init__(self, model, out, options):
        if options["format"] not in ("modelopt", "compressed-tensors"):
            raise UnsupportedError(f"format = {options['format']}: with quantize modelopt or compressed-tensors")
        self.model, self.out, self.options = Path(model), Path(out), options
        if self.out.exists() and any(self.out.iterdir()):
            raise InvalidValueError(f"{out}: is not empty")
        self.layers = Path(f"{out}.layers")

    def _quantize(self, name, tensors, statistics):
        """A folder of part of the model, quantized."""
        source, made = self.layers / f"{name}.source", self.layers / name
        for folder in (source, made):
            shutil.rmtree(folder, ignore_errors=True)
        source.mkdir(parents=True)
        shutil.copy(self.model / "config.json", source)
        save_file({key: file.get_tensor(key) for key, file in tensors.items()}, source / "model.safetensors")
        given = dict(self.options)
        if statistics is None:
            given = dict(format=given["format"], quantizer="mse")
        else:
            statistics.save(source / "statistics")
            given["statistics"] = source / "statistics"
        nvfp4.quantize_checkpoint(source, made, **given)
        shutil.rmtree(source)

    def block(self, i, tensors, statistics):
        self._quantize(f"{i}", tensors, statistics)

    def finish(self, blocks):
        self._quantize("rest", blocks.tensors[None], None)
        partial = Path(f"{self.out}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        names = [*(str(i) for i in range(len(blocks.names))), "rest"]
        index, total = {}, 0
        for number, name in enumerate(names, 1):
            file = f"model-{number:05}-of-{len(names):05}.safetensors"
            shutil.move(self.layers / name / "model.safetensors", partial / file)
            for tensor, count in spans(partial / file):
                index[tensor] = file
                total += count
        (partial / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}, indent=2))
        for config in CONFIGS:
            found = [json.loads((self.layers / n / config).read_text()) for n in names
                     if (self.layers / n / config).exists()]
            if found:
                (partial / config).write_text(json.dumps(together(found), indent=2) + "\n")
        for other in self.model.iterdir():
            if other.is_file() and other.suffix != ".safetensors" and not (partial / other.name).exists():
                shutil.copy(other, partial)
        if self.out.exists():
            self.out.rmdir()
        partial.rename(self.out)
        shutil.rmtree(self.layers)


def spans(file):
    """Names of the tensors of a safetensors file, and their bytes."""
    with open(file, "rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    for name, about in header.items():
        if name != "__metadata__":
            first, end = about["data_offsets"]
            yield name, end - first


def together(configs):
    """One configuration of those of the parts: their lists of layers left alone are added."""
    first = configs[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(k for c in configs for k in c)
        return {k: together([c[k] for c in configs if k in c]) for k in keys}
    if isinstance(first, list) and all(isinstance(v, str) for c in configs for v in c):
        return list(dict.fromkeys(v for c in configs for v in c))
    return first
