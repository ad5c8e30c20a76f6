"""What the inputs of a model's linear layers are like, for quantizers that want to know.

nvfp4.calibrate.calibrate() and the command python -m nvfp4.calibrate. Needs PyTorch, transformers 5 and
safetensors.
"""

import re
import tempfile
import time
from pathlib import Path

import torch

import nvfp4

from .._errors import FormatError
from ..evaluate.text import windows as windows_of
from .blocks import Blocks
from .collect import Collector, Watch
from .statistics import Statistics

__all__ = ["Calibration", "Statistics", "calibrate", "merge"]


def weights_to_quantize(model):
    """The weights that `nvfp4 quantize` would quantize -> shape, by the checkpoint's names."""
    with tempfile.TemporaryDirectory() as folder:
        report = nvfp4.quantize_checkpoint(model, Path(folder) / "none", dry_run=True)
    wanted = {t["name"]: t["shape"] for t in report["tensors"] if t["action"] == "quantized"}
    if not wanted:
        raise FormatError(f"{model}: has no weight to quantize")
    return wanted


def inputs_of(parameter, sources, shape):
    """For each matrix of a parameter of the model, the modules of the checkpoint that it is made of."""
    modules = [s.removesuffix(".weight") for s in sources]
    if len(shape) == 2:
        return [modules]
    experts = [[] for _ in range(shape[0])]
    for module in modules:
        number = re.search(r"\.(\d+)\.[^.]+$", module)
        if number and len(modules) > 1:
            experts[int(number[1])].append(module)
            continue
        parent, _, last = module.rpartition(".")
        for e, names in enumerate(experts):
            names += [f"{parent}.{e}.{part}" for part in (("gate_proj", "up_proj") if last == "gate_up_proj" else (last,))]
    return experts


class Calibration:
    """What a model's weights are called, and what of it runs."""

    def __init__(self, model, dtype, device):
        wanted = weights_to_quantize(model)
        self.blocks = Blocks(model, getattr(torch, dtype), torch.device(device))
        self.weights = [self._weights_of(name, wanted) for name in self.blocks.names]

    def _weights_of(self, layer, wanted):
        """Name of each parameter of a layer whose inputs count -> the modules of each of its matrices."""
        found = {}
        module = self.blocks.model.get_submodule(layer)
        for name, parameter in module.named_parameters():
            sources = [s for s in self.blocks.sources.get(f"{layer}.{name}", []) if s in wanted]
            if sources and parameter.dim() in (2, 3):
                found[name] = inputs_of(name, sources, parameter.shape)
        return found

    def depth_of(self, layer, name):
        """K of a parameter: [N, K], [E, N, K], or [E, K, N] of families that multiply by x on the left."""
        shape = self.blocks.model.get_submodule(layer).get_parameter(name).shape
        hidden = self.blocks.model.config.get_text_config().hidden_size
        reads_hidden = not name.rpartition(".")[2].startswith(("down", "w2"))
        if len(shape) == 3 and shape[1] != shape[2] and (shape[1] == hidden) == reads_hidden:
            return shape[1]
        return shape[-1]

    def gram_bytes(self):
        """Of the file, at most: what shares its inputs is known by name."""
        total = 0
        for layer, weights in zip(self.blocks.names, self.weights):
            inputs = set()
            for name, matrices in weights.items():
                shared = re.sub(r"\b[qkv]_proj\b", "qkv", re.sub(r"\b(gate|up|gate_up)_proj\b|\bw[13]\b", "gate", name))
                inputs |= {(shared, e, self.depth_of(layer, name)) for e in range(len(matrices))}
            total += sum(k * (k + 1) // 2 * 4 for _, _, k in inputs)
        return total

    def modules(self):
        return [m for weights in self.weights for matrices in weights.values() for names in matrices for m in names]

    def run(self, windows, batch, keep_gram, progress):
        hidden, arguments = self.blocks.start(windows.split(batch))
        statistics, start = Statistics(), time.monotonic()
        for i, name in enumerate(self.blocks.names):
            args, kwargs = arguments[i]
            collector = Collector(keep_gram)
            with self.blocks.loaded(i) as layer, torch.no_grad():
                weights = [(layer.get_parameter(n), modules) for n, modules in self.weights[i].items()]
                with Watch(weights, collector):
                    for b, states in enumerate(hidden):
                        rest = trimmed(kwargs, states.shape[0]), trimmed(args, states.shape[0])
                        out = layer(states, *rest[1], **rest[0])
                        hidden[b] = out[0] if isinstance(out, tuple) else out
                        collector.forget_inputs()
            collector.move_to(statistics)
            done = (i + 1) / len(self.blocks.names)
            progress(f"{name}: {done:4.0%}, {(time.monotonic() - start) * (1 / done - 1):.0f} s left")
        for layer, weights in zip(self.blocks.names, self.weights):
            for parameter, matrices in weights.items():
                for module in (m for names in matrices for m in names if f"{m}.diag" not in statistics.tensors):
                    statistics.add_empty(module, self.depth_of(layer, parameter))
        return statistics


def trimmed(value, count):
    """The arguments of a whole batch, for one of `count` windows."""
    if isinstance(value, dict):
        return {k: trimmed(v, count) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(trimmed(v, count) for v in value)
    if isinstance(value, torch.Tensor) and value.dim() > 1 and value.shape[0] > count > 0:
        return value[:count]
    return value


def calibrate(model, text, out, *, keep_gram=False, windows=256, context=512, batch=8, dtype="float32",
              device="cpu", dry_run=False, progress=lambda line: None):
    """Runs `model`, one decoder layer at a time in memory, on `windows` windows of the text and writes
    what it saw to `out`.

    keep_gram  keep the Gram matrices XᵀX too, K · (K + 1) / 2 numbers for each input
    dtype      of the arithmetic
    dry_run    only say what would be done
    progress   called with lines for people
    Returns the Statistics; None for a dry run. Raises IoError, FormatError, InvalidValueError,
    UnsupportedError.
    """
    from transformers import AutoTokenizer

    calibration = Calibration(model, dtype, device)
    tokens = windows_of(text, AutoTokenizer.from_pretrained(model), windows, context)[:, :-1]
    progress(f"{len(calibration.blocks.names)} layers, {len(calibration.modules())} weights, {tokens.numel()} tokens "
             f"in {len(tokens)} windows")
    if keep_gram:
        progress(f"Gram matrices: {calibration.gram_bytes() / 1e6:.1f} MB in {out}")
    if dry_run:
        return None
    statistics = calibration.run(tokens, batch, keep_gram, progress)
    if unseen := statistics.unseen():
        progress(f"{len(unseen)} weights saw no token: {unseen[0]}" + (", ..." if len(unseen) > 1 else ""))
    statistics.save(out)
    return statistics


def merge(files, out):
    """Adds up statistics of one model, of several texts."""
    statistics = Statistics.load(files[0])
    for file in files[1:]:
        statistics.add(Statistics.load(file), file)
    statistics.save(out)
    return statistics
