"""Estimates time, memory and disk space of a run from config.json alone."""

import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from .._errors import UnsupportedError, taken_from_transformers
from .blocks import find_layers, head_of, parameters_on_meta
from .experts import experts_of_token, stacks_of, streamed_modules
from .reading import linears_of
from .room import held, room_for, side_by_side, widest
from .sensitivity import default_tokens, groups_of, shared_input, windows_of_few


def rate(dtype, device):
    """Returns operations per second of a GEMM of size 1024: two for each multiplication with its addition."""
    a = torch.ones(1024, 1024, dtype=dtype, device=device)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        (a @ a)[0, 0].item()
        seconds.append(time.perf_counter() - start)
    return 2 * 1024**3 / min(seconds)


class Estimate:
    """Sizes of the layers of a model and of the text."""

    def __init__(self, model, windows, context, batch, dtype, device):
        with taken_from_transformers(model, "config.json"):
            config = AutoConfig.from_pretrained(model)
        if getattr(config, "quantization_config", None) is not None:
            config.quantization_config = None  # the sizes are those of the unquantized model
        with taken_from_transformers(model, "it"), parameters_on_meta():
            whole = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        text = config.get_text_config()
        self.tokens, self.hidden = windows * context, text.hidden_size
        self.top, self.of_batch = experts_of_token(config), min(batch, windows) * context
        self.context, self.batch = context, batch
        self.dtype, self.device = getattr(torch, dtype), device
        layers_name, layers = find_layers(whole)
        self.layers = [self._of_layer(layer) for layer in layers]
        if not any(layer["weights"] for layer in self.layers):
            raise UnsupportedError(f"{model}: no weight to quantize was found")
        outside = {n: p.numel() for n, p in whole.named_parameters() if not n.startswith(layers_name + ".")}
        self.outside = sum(outside.values())
        rows = {f"{name}.weight" for name, module in whole.named_modules() if isinstance(module, torch.nn.Embedding)}
        self.before = sum(count for name, count in outside.items() if name not in {*head_of(whole), *rows})

    def _of_layer(self, layer):
        """Returns the sizes of a layer. weights: (matrices, N, K, tokens per matrix); grams: (matrices, K, tokens per
        matrix) of each input."""
        weights, grams, names = [], {}, []
        for name, p in layer.named_parameters():
            module = name.removesuffix(".weight")
            if p.dim() == 3:
                depth = self.hidden if not name.rpartition(".")[2].startswith("down") else p.numel() // (
                    p.shape[0] * self.hidden)
                weight = (p.shape[0], p.numel() // (p.shape[0] * depth), depth, self.tokens * self.top / p.shape[0])
            elif p.dim() == 2 and isinstance(layer.get_submodule(module), torch.nn.Linear):
                weight = (1, p.shape[0], p.shape[1], self.tokens)
            else:
                continue
            weights.append(weight)
            names.append(name)
            grams[shared_input(module)] = (weight[0], weight[2], weight[3])
        stacks = [p.shape for module in streamed_modules(layer)[0].values()
                  for p in (module._parameters[name] for name in stacks_of(module))]
        linears = linears_of(layer)
        matrices = [m.weight.numel() for m in linears.values()]
        every = sum(p.numel() for p in layer.parameters())
        return dict(weights=weights, grams=list(grams.values()), all=every, groups=len(groups_of(names)),
                    kept=every - sum(shape.numel() for shape in stacks) - sum(matrices),
                    matrix=max([shape[1:].numel() for shape in stacks] + matrices, default=0),
                    channels=widest(linears, self.hidden), experts=max((shape[0] for shape in stacks), default=0))

    def _of_running(self, layer, with_grams, room):
        """Returns bytes of memory and disk that a layer takes while it runs."""
        size, depths = self.dtype.itemsize, [(e, k, t) for e, k, t in layer["grams"]] if with_grams else []
        of_batch = held(self.of_batch, self.hidden, size, layer["experts"], self.top, layer["channels"])
        first = 0 if layer["experts"] else sum(e * k * k * 4 for e, k, _ in depths)
        batches = -(-self.tokens // self.of_batch)
        waiting = (side_by_side(batches, of_batch, max(0, room - first)) - 1) * of_batch
        # Inputs of fewer than K tokens are stored until the layer has run, on disk if they do not fit.
        kept = sum(min(e * k * k * 4, e * k * t * size) for e, k, t in depths)
        inputs = sum(e * k * t * size for e, k, t in depths)
        active = held(self.of_batch, self.hidden, size, 0, self.top, layer["channels"])
        if layer["experts"]:
            active = max(active, of_batch)
        return dict(weights=(layer["kept"] + layer["matrix"]) * size, active=active,
                    room=waiting + min(kept, max(0, room - waiting)),
                    spilled=inputs if kept > room - waiting else 0, gram=max((k * k * 4 for _, k, _ in depths), default=0))

    def run(self, with_grams, gram_memory):
        """Returns the bytes of the layer that takes most while it runs, and the largest spool on disk."""
        room = gram_memory if gram_memory is not None else room_for(k for layer in self.layers for _, _, k, _ in
                                                                    layer["weights"])
        running = [self._of_running(layer, with_grams, room) for layer in self.layers]
        most = max(running, key=lambda r: max(r["weights"] + r["active"] + r["room"], r["gram"]))
        return most, max(r["spilled"] for r in running)

    def few(self, sensitivity):
        """Returns tokens, operations, and bytes on disk for measuring the sensitivity."""
        groups = sum(layer["groups"] for layer in self.layers)
        if sensitivity is None:
            sensitivity = default_tokens(self.tokens, groups)
        if not sensitivity:
            return 0, 0, 0
        count, length = windows_of_few(sensitivity, self.context, self.batch)
        copies, flop = 1, 0
        for layer in self.layers:
            copies += 2 * layer["groups"]
            flop += copies * count * length * sum(2 * e * n * k * t for e, n, k, t in layer["weights"]) / self.tokens
        return count * length, flop, 2 * copies * count * length * self.hidden * self.dtype.itemsize

    def lines(self, say, keep_gram, quantize, sweeps, gram_memory, out=None, sensitivity=None):
        weights = [w for layer in self.layers for w in layer["weights"]]
        quantized = sum(e * n * k for e, n, k, _ in weights)
        gram_bytes = [sum(e * k * k * 4 for e, k, _ in layer["grams"]) for layer in self.layers]
        states = self.tokens * self.hidden * self.dtype.itemsize
        by_gram = quantize is not None and sweeps is not None
        with_grams = keep_gram or by_gram
        # attention and other operations are left out: they are small at contexts of 512
        flop = sum(2 * e * t * n * k for e, n, k, t in weights)
        if with_grams:
            flop += sum(2 * e * t * k * k for layer in self.layers for e, k, t in layer["grams"])
        gptq = sum(e * ((1 + sweeps) * 2 * n * k * k + k**3) for e, n, k, _ in weights) if by_gram else 0
        few, few_flop, few_disk = self.few(0 if sensitivity is None and quantize and not out else sensitivity)
        speed = rate(self.dtype, self.device)
        most, spilled = self.run(with_grams, gram_memory)
        factors = max(factor_bytes([k for _, k, _ in layer["grams"]]) for layer in self.layers) if by_gram else 0
        running = states + max(most["weights"] + most["active"] + most["room"], most["gram"])
        memory = max(running, factors, states + self.before * self.dtype.itemsize)
        # While a layer is quantized, its weights (2 bytes per element) and Gram matrices are on disk.
        at_work = max(2 * layer["all"] + (grams // 2 if by_gram else 0) for layer, grams in zip(self.layers, gram_bytes))
        disk = sum(8 * k * e for e, _, k, _ in weights)
        if keep_gram and not quantize:
            disk += sum(gram_bytes) // 2
        say(f"{len(self.layers)} layers, {quantized / 1e9:.2f} G weights to quantize, {self.tokens} tokens")
        say(f"time: {hours((flop + few_flop + gptq) / speed)} at the {speed / 1e9:.0f} GFLOP/s measured here, "
            f"{flop / 1e12:.0f} TFLOP on text"
            + (f", {100 * few_flop / flop:.0f} % more with each layer quantized alone on {few} tokens" if few else "")
            + f" and {gptq / 1e12:.0f} in quantizing; reading is not counted")
        say(f"memory: {size(memory)}: hidden states {size(states)}, a matrix and what stays of its layer "
            f"{size(most['weights'])}, activations of a batch {size(most['active'])}, "
            + ("Gram matrices, inputs and " if with_grams else "") + f"batches that wait {size(most['room'])}"
            + (f"; or, without these, what factoring a Gram matrix takes {size(factors)}" if by_gram else ""))
        say(f"Gram matrices: {size(sum(gram_bytes) // 2)} for all layers"
            + (", written" if keep_gram and not quantize else ", not written"))
        say(f"disk: {size(disk)} of statistics, {size(states)} for going on after an interruption"
            + (f", {size(few_disk)} of states with each layer quantized alone" if few else "")
            + (f", at most {size(spilled)} of inputs of a layer while it runs" if spilled else "")
            + (f", {size(at_work)} for the layer that is quantized, {size(quantized * 9 // 16 + self.outside * 2)} for "
               f"the quantized model" if quantize else ""))


def factor_bytes(depths):
    """Returns bytes for factoring the Gram matrices of a layer with K in `depths`: the largest is factored while the
    factors of the one before are in use."""
    first, second = sorted([*depths, 0, 0])[:-3:-1]
    return 12 * first * first + 8 * second * second


def size(count):
    for unit, value in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= value:
            return f"{count / value:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def hours(seconds):
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min" if seconds >= 60 else (
        f"{seconds:.0f} s")
