"""Measures the inputs of a model's linear layers, for quantizers that need statistics.

nvfp4.calibrate.calibrate() and the command nvfp4 calibrate. Needs PyTorch, transformers 5 and
safetensors.
"""

import json
import re
import tempfile
import time
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch

import nvfp4

from .. import _core
from .._checkpoint import require_apart
from .._errors import FormatError, InvalidValueError
from ..evaluate.devices import default_device, usable_device
from ..evaluate.text import documents_of, loaded_tokenizer, windows_of
from .blocks import Blocks
from .collect import Collector, Watch, gram_bytes, watched_attention
from .comfyui import comfyui_name
from .dataset import documents_of_dataset
from .estimate import Estimate
from .experts import experts_of_token
from .onepass import OnePass
from .parts import Parts
from .reading import give_back
from .room import held, room_for, side_by_side, widest
from .sensitivity import Sensitivity, default_tokens, groups_of, windows_of_few
from .spool import Spool
from .statistics import RANK_KEY, Statistics, require_output

#: The name that torch.compile gives to the module that it wraps.
COMPILED = "_orig_mod"

__all__ = ["Calibration", "Statistics", "calibrate", "calibrate_module", "merge"]


def weights_to_quantize(model):
    """Returns name -> shape of the weights that `nvfp4 quantize` would quantize, by the checkpoint's names."""
    with tempfile.TemporaryDirectory() as folder:
        report = nvfp4.quantize_checkpoint(model, Path(folder) / "none", dry_run=True)
    wanted = {t["name"]: t["shape"] for t in report["tensors"] if t["action"] == "quantized"}
    if not wanted:
        raise FormatError(f"{model}: has no weight to quantize")
    return wanted


def inputs_of(parameter, sources, shape):
    """Returns, for each matrix of a parameter, the names of the checkpoint modules that it consists of."""
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
    """A model, the names of its weights in the checkpoint, and the run over its layers."""

    def __init__(self, model, dtype, device, gram_memory):
        wanted = weights_to_quantize(model)
        self.blocks = Blocks(model, getattr(torch, dtype), usable_device(device))
        self.weights = [self._weights_of(name, wanted) for name in self.blocks.names]
        self.room = gram_memory if gram_memory is not None else room_for(
            self.depth_of(layer, name) for layer, weights in zip(self.blocks.names, self.weights) for name in weights)
        self.grams = [self._grams_of(i) for i in range(len(self.weights))]

    def _weights_of(self, layer, wanted):
        """Returns, for each parameter of a layer that is quantized, the modules of each of its matrices."""
        found = {}
        module = self.blocks.model.get_submodule(layer)
        for name, parameter in module.named_parameters():
            sources = [s for s in self.blocks.sources.get(f"{layer}.{name}", []) if s in wanted]
            if sources and parameter.dim() in (2, 3):
                found[name] = inputs_of(name, sources, parameter.shape)
        return found

    def depth_of(self, layer, name):
        """Returns K of a parameter [N, K] or [E, N, K], or [E, K, N] in families that compute x · W."""
        shape = self.blocks.model.get_submodule(layer).get_parameter(name).shape
        hidden = self.blocks.model.config.get_text_config().hidden_size
        reads_hidden = not name.rpartition(".")[2].startswith(("down", "w2"))
        if len(shape) == 3 and shape[1] != shape[2] and (shape[1] == hidden) == reads_hidden:
            return shape[1]
        return shape[-1]

    def _grams_of(self, i):
        """Returns K of each Gram matrix of a layer. It is an upper limit: layers that share an input are known by
        name."""
        inputs = set()
        for name, matrices in self.weights[i].items():
            shared = re.sub(r"\b[qkv]_proj\b", "qkv", re.sub(r"\b(gate|up|gate_up)_proj\b|\bw[13]\b", "gate", name))
            inputs |= {(shared, e, self.depth_of(self.blocks.names[i], name)) for e in range(len(matrices))}
        return [k for _, _, k in inputs]

    def gram_bytes(self):
        """Returns an upper limit of the bytes of all Gram matrices in the file."""
        return sum(k * (k + 1) // 2 * 4 for depths in self.grams for k in depths)

    def modules(self):
        return [m for weights in self.weights for matrices in weights.values() for names in matrices for m in names]

    def groups(self):
        """Returns the number of groups of weights that are quantized together."""
        return sum(len(groups_of(weights)) for weights in self.weights)

    def run(self, windows, batch, keep_gram, parts, progress, one_pass=None, few=None):
        """Runs the layers in order and saves their statistics in `parts`. With `one_pass` it also quantizes each layer.
        `few`: the Sensitivity to measure, or None."""
        hidden, arguments = self.blocks.start(windows.split(batch))
        first, hidden = parts.states(hidden)
        if few:
            few.start(first)
        if one_pass and first == 0:
            one_pass.start()
        if first:
            progress(f"{first} layers were done before")
        start = time.monotonic()
        for i in range(first, len(self.blocks.names)):
            name = self.blocks.names[i]
            spool = Spool(parts.folder)
            collector = Collector(keep_gram, self.room, spool)
            self._run_layer(i, hidden, arguments[i], collector, few)
            if few and i + 1 == len(self.blocks.names):
                few.end()
            statistics = Statistics()
            collector.move_to(statistics)
            self._add_unseen(i, statistics)
            if few:
                few.add_errors(i, statistics, windows.numel())
            if one_pass:
                parts.write_states(i, hidden)
                places = forget(hidden)
                one_pass.block(i, self.blocks.tensors[name], statistics)
                parts.save(i, statistics.without_grams())
                parts.read_states(hidden, places)
            else:
                parts.write_states(i, hidden)
                parts.save(i, statistics)
            spool.close()
            if few:
                few.saved(i)
            done, all_ = i + 1 - first, len(self.blocks.names) - first
            left = (time.monotonic() - start) * (all_ / done - 1)
            progress(f"{name}: {(i + 1) / len(self.blocks.names):4.0%}, {left:.0f} s left")
        statistics = parts.sum()
        if few:
            few.finish(statistics)
        return statistics

    def _run_layer(self, i, hidden, arguments, collector, few=None):
        """Runs a layer; its outputs replace `hidden`. No reference to the weights remains after the call."""
        with self.blocks.loaded(i, self.weights[i]) as (layer, streamed):
            weights = [(layer.get_parameter(n), modules) for n, modules in self.weights[i].items()
                       if n not in self.blocks.streams(i)]
            watch = Watch(weights, collector)

            def run(b):
                with torch.no_grad(), watch:
                    out = forward(layer, hidden[b], arguments)
                hidden[b] = in_place_of(hidden[b], out[0] if isinstance(out, tuple) else out)
                collector.forget_inputs()

            with watched_attention(self.blocks.attentions(i), collector):
                jobs = [partial(run, b) for b in range(len(hidden))]
                jobs += few.jobs(i, layer, weights, collector, forward) if few else []
                size = self._side_by_side(i, hidden[0], len(jobs), streamed.most(), collector)
                for begin in range(0, len(jobs), size):
                    streamed.run(jobs[begin:begin + size])

    def _side_by_side(self, i, first, batches, experts, collector):
        """Returns the number of batches that go through the layer together. With experts, all batches share each matrix
        that is read, and this has priority over Gram matrices in memory."""
        tokens, width, itemsize = first.shape[0] * first.shape[1], first.shape[-1], first.dtype.itemsize
        channels = widest(self.blocks.linears[i], width)
        of_batch = held(tokens, width, itemsize, experts, experts_of_token(self.blocks.model.config), channels)
        grams = 0 if experts or not collector.keep_gram else sum(map(gram_bytes, self.grams[i]))
        size = side_by_side(batches, of_batch, max(0, self.room - grams))
        collector.left = max(0, self.room - (size - 1) * of_batch)
        return size

    def _add_unseen(self, i, statistics):
        for parameter, matrices in self.weights[i].items():
            for module in (m for names in matrices for m in names if f"{m}.diag" not in statistics.tensors):
                statistics.add_empty(module, self.depth_of(self.blocks.names[i], parameter))


def in_place_of(hidden, out):
    """Copies `out` into the memory of `hidden`, if shape and dtype are equal, so that memory does not grow or
    fragment."""
    return hidden.copy_(out) if (hidden.shape, hidden.dtype) == (out.shape, out.dtype) else out


def forward(layer, states, arguments):
    """Returns the output of the layer. `arguments` are those of as many windows as `states` has, or more."""
    args, kwargs = (trimmed(given, states.shape[0]) for given in arguments)
    return layer(states, *args, **kwargs)


def forget(hidden):
    """Takes hidden states on the CPU out of memory. Returns where each was."""
    places = [h.device for h in hidden]
    for b, place in enumerate(places):
        if place.type == "cpu":
            hidden[b] = None
    give_back()
    return places


def trimmed(value, count):
    """Returns the arguments of a whole batch for a batch of `count` windows."""
    if isinstance(value, dict):
        return {k: trimmed(v, count) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(trimmed(v, count) for v in value)
    if isinstance(value, torch.Tensor) and value.dim() > 1 and value.shape[0] > count > 0:
        return value[:count]
    return value


def of_rank(tokens, batch, rank, ranks):
    """Returns the windows of a rank, in whole batches: the result for a window depends on the other windows of its
    batch."""
    batches = tokens.split(batch)
    if ranks > len(batches):
        raise InvalidValueError(f"ranks = {ranks}, must be at most {len(batches)}, the number of batches: "
                                f"{len(tokens)} windows, {batch} at a time")
    return torch.cat(batches[rank::ranks])


def file_of_rank(out, rank, ranks):
    """Returns <out>.rank-R-of-N; the suffix .safetensors stays last."""
    end = ".safetensors" if str(out).endswith(".safetensors") else ""
    return f"{str(out).removesuffix(end)}.rank-{rank}-of-{ranks}{end}"


def _sweeps_of(method):
    """Returns the largest number of sweeps of gptq, or None for a method without Gram matrices."""
    name, colon, sweeps = method.partition(":")
    if name not in ("gptq", "weighted") or colon and not (name == "gptq" and sweeps.isdecimal()):
        raise InvalidValueError(f"method = {method!r}, must be gptq, gptq:N or weighted")
    return int(sweeps or 4) if name == "gptq" else None


def calibrate(model, text, out, *, dataset=None, column="text", keep_gram=False, windows=256, context=512, batch=8,
              dtype="float32", device=None, dry_run=False, resume=False, quantize=None, method="gptq",
              format="modelopt", rank=None, ranks=1, gram_memory=None, sensitivity=None, progress=lambda line: None):
    """Runs `model`, one decoder layer after the other and with one matrix of it in memory, on `windows` windows of the
    text and writes what it saw to `out`.

    dataset    instead of the text: a folder that datasets.save_to_disk wrote, or a .jsonl or .parquet file,
               whose `column` has the documents
    keep_gram  keep the Gram matrices XᵀX too, K · (K + 1) / 2 numbers for each input
    dtype      of the arithmetic
    device     "cpu", "cuda", "cuda:1" …; None: CUDA where there is a GPU
    dry_run    only say what would be done
    resume     go on with an interrupted run of the same arguments
    quantize   a folder to write: each layer is quantized as soon as it has run, by `method`, gptq, gptq:N
               or weighted, and in `format`; its Gram matrices are dropped then. `out` may be None
    rank       which of the `ranks` processes this is, from 0: they share the batches, and each writes a file,
               <out>.rank-R-of-N, for merge(). ranks = "auto": both as mpirun, srun or torchrun say
    gram_memory  bytes for the Gram matrices of a layer while it runs, for inputs kept instead, and for batches that
               wait for a matrix of the model; what has no place there waits on disk, beside `out`, and matrices are
               read more often. None: 8 K² of the largest K, at least 64 MiB. It changes no byte of what is written
    sensitivity  on how many tokens to measure how the last hidden state changes when each layer alone is quantized, for
               `nvfp4 quantize --bits` and `--w4a4`; 0: not at all. None: as many as add a tenth to the time, 16 to
               512, if `out` is written
    progress   called with lines for people
    Returns the Statistics; None for a dry run. Raises IoError, FormatError, InvalidValueError,
    UnsupportedError.
    """
    for path in (model, out, quantize):
        if path is not None:
            _core.require_no_address(path)
    device, sweeps = device or default_device(), _sweeps_of(method)
    if dry_run:
        Estimate(model, windows, context, batch, dtype, device).lines(progress, keep_gram, quantize, sweeps,
                                                                      gram_memory, out, sensitivity)
        return None
    rank, ranks = _core.rank_from_text(rank, str(ranks))
    if ranks > 1 and quantize:
        raise InvalidValueError(f"ranks = {ranks} and quantize: a layer is quantized by what all ranks saw; merge "
                                f"their statistics first")
    written = out and (out if ranks == 1 else file_of_rank(out, rank, ranks))
    require_apart({"model": model, "text": text, "dataset": dataset},
                  {"out": written, "quantize": quantize, "parts": f"{quantize or written}.parts"})
    if out:
        require_output(written)
    calibration = Calibration(model, dtype, device, gram_memory)
    documents = documents_of(text) if dataset is None else documents_of_dataset(dataset, column)
    tokens = windows_of(documents, dataset or text, loaded_tokenizer(model), windows, context)[:, :-1]
    metadata = {}
    if ranks > 1:
        whole = sha256(tokens.numpy().tobytes()).hexdigest()
        metadata = {RANK_KEY: json.dumps(dict(rank=rank, ranks=ranks, tokens=whole))}
        tokens = of_rank(tokens, batch, rank, ranks)
        out = written
    progress(f"{len(calibration.blocks.names)} layers, {len(calibration.modules())} weights, {tokens.numel()} tokens "
             f"in {len(tokens)} windows")
    for name, reason in calibration.blocks.whole.values():
        progress(f"{name} is read as a whole: {reason}")
    if keep_gram and not quantize:
        progress(f"Gram matrices: {calibration.gram_bytes() / 1e6:.1f} MB in {out}")
    grams = keep_gram or quantize is not None and sweeps is not None
    if sensitivity is None:
        sensitivity = default_tokens(tokens.numel(), calibration.groups()) if out else 0
    key = dict(model=str(Path(model).resolve()), tokens=sha256(tokens.numpy().tobytes()).hexdigest(), batch=batch,
               dtype=dtype, grams=grams, sensitivity=sensitivity, method=[method, format] if quantize else None)
    one_pass = None
    if quantize:
        one_pass = OnePass(model, quantize, dict(method=method, format=format), resume)
    parts = Parts(f"{quantize or out}.parts", key, resume)
    if parts.was_done:
        progress("all was done before")
        statistics = Statistics.load(out) if out else Statistics()
        parts.remove()
        return statistics
    few = None
    if sensitivity:
        count, length = windows_of_few(sensitivity, context, batch)
        few = Sensitivity(calibration.blocks, calibration.weights, tokens[:count, :length], batch * context, parts.folder)
    statistics = calibration.run(tokens, batch, grams, parts, progress, one_pass, few)
    if unseen := statistics.unseen():
        progress(f"{len(unseen)} weights got no token: {unseen[0]}" + (", ..." if len(unseen) > 1 else ""))
    if one_pass:
        one_pass.finish(calibration.blocks)
    if out:
        statistics.save(out, metadata.items())
        statistics = Statistics.load(out)  # the parts are about to be removed
    parts.remove()
    return statistics


def calibrate_module(module, run, out=None, *, keep_gram=False, comfyui=False):
    """Collects statistics of all torch.nn.Linear in `module` while `run()` runs it, such as a pipeline of diffusers on
    prompts. Names are those of `module`, a transformer of diffusers as in its folder.

    out        the file to write; None: none
    keep_gram  keep the Gram matrices too, all of them in memory
    comfyui    names of ComfyUI's single files instead, for FLUX, FLUX.2, SD3, Qwen-Image and Wan
    Returns the Statistics. Raises IoError, FormatError, InvalidValueError.
    """
    if out is not None:
        _core.require_no_address(out)
        require_output(out)
    collector, statistics = Collector(keep_gram), Statistics()
    linear, module = {}, getattr(module, COMPILED, module)
    for name, layer in module.named_modules():
        name = name.replace(f"{COMPILED}.", "")
        if isinstance(layer, torch.nn.Linear):  # parts of a fused matrix have one input: the first is enough
            linear.setdefault(comfyui_name(name, type(module).__name__) if comfyui else name, layer)
    # An input of an earlier step may still exist; it would be the first of its layer.
    hook = module.register_forward_pre_hook(lambda *_: collector.forget_inputs())
    try:
        with torch.no_grad(), torch.compiler.set_stance("force_eager"), \
                Watch([(m.weight, [[name]]) for name, m in linear.items()], collector):
            run()
    finally:
        hook.remove()
    if not collector.sums:
        raise InvalidValueError(f"run: no layer of the {len(linear)} of {type(module).__name__} got an input; run() must "
                                f"call this module")
    collector.move_to(statistics)
    for name in linear.keys() - collector.sums.keys():
        statistics.add_empty(name, linear[name].in_features)
    if out is not None:
        statistics.save(out)
    return statistics


def merge(files, out):
    """Adds up statistics of one model, of several texts or ranks. Their order changes no byte. Raises
    InvalidValueError if some of the ranks of a run are missing."""
    _core.require_no_address(out)
    files = list(files)
    require_apart({f"file {i}": file for i, file in enumerate(files)}, {"out": out})
    require_output(out)
    statistics = Statistics.sum_of(files)
    statistics.save(out)
    return statistics
