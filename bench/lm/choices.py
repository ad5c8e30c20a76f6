#!/usr/bin/env python3
"""Measures the choice of `--bits`: its KL divergence, and that of other choices with as many bytes.

A layer (q, k and v together; gate and up; all experts of a layer) is in NVFP4, FP8 or BF16. For each number of bits the
layers in FP8 are those that `nvfp4 quantize --bits` chooses, or as many as have room, taken in another order: the
first and the last layers first, attention first, or at random. What is left makes layers of that order BF16. Weights alone are quantized.

  choices.py --model MODEL --text FILE --calibration FILE --bits 5 5.5 6 --windows 8

The tables are printed; --json has the divergence of each window and the layers of each choice. Needs PyTorch, transformers 5, safetensors and this package.
"""

import argparse
import json
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import nvfp4
from model import Checkpoint, model_name
from nvfp4.calibrate import calibrate
from nvfp4.evaluate.comparison import columns_of
from nvfp4.evaluate.resampling import Bootstrap
from nvfp4.evaluate.text import windows

#: Bits a weight of the forms of a layer: NVFP4, FP8, BF16.
BITS = (4.5, 8, 16)
EIGHT = "rules: [{kind: [attention, mlp, experts, shared_experts, linear], action: fp8}]\n"


def layer_of(module):
    """Returns the name of the layer that loaders build from this module."""
    module = re.sub(r"\.experts\..*", ".experts", module)
    return re.sub(r"\.[qkv]_proj$", ".qkv", re.sub(r"\.(gate|up)_proj$", ".gate_up", module))


class Layers:
    """A model whose layers each have the weights of one of two checkpoints, NVFP4 and FP8, or their own."""

    def __init__(self, folder, checkpoints, device):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                          experts_implementation="eager").eval().to(device)
        self.places = {}  # layer -> [(parameter, its values in each form)]
        for name, module in self.model.named_modules():
            for last, parameter in module.named_parameters(recurse=False):
                values = [self._values(c, name, last, parameter) for c in checkpoints]
                if values[0] is not None:
                    layer = layer_of(f"{name}.0" if parameter.dim() == 3 else name)
                    self.places.setdefault(layer, []).append(
                        (parameter, [*(v.to(device) for v in values), parameter.data]))
        self.elements = {layer: sum(p.numel() for p, _ in places) for layer, places in self.places.items()}

    @staticmethod
    def _values(checkpoint, name, last, parameter):
        if parameter.dim() != 3:
            return checkpoint.weights.get(name) if last == "weight" else None
        parts = ("gate_proj", "up_proj") if last == "gate_up_proj" else (last,)
        return torch.stack([torch.cat([checkpoint.weights[f"{name}.{e}.{part}"] for part in parts])
                            for e in range(len(parameter))])

    def use(self, forms):
        """By layer the number of its form."""
        for layer, places in self.places.items():
            for parameter, values in places:
                parameter.data = values[forms[layer]]

    def bits(self, forms):
        return sum(BITS[forms[layer]] * n for layer, n in self.elements.items()) / sum(self.elements.values())

    @torch.no_grad()
    def log_probabilities(self, tokens):
        return torch.log_softmax(self.model(tokens).logits.float(), -1)


def forms_of(folder, layers):
    """By layer, which form it has in a checkpoint."""
    checkpoint = Checkpoint(folder)
    forms = dict.fromkeys(layers, 2)
    for module in checkpoint.weights:
        forms[layer_of(module)] = 0 if module in checkpoint.stored else 1
    return forms


def filled(order, elements, bits):
    """Returns a choice: layers in FP8 in that order, as many as fit, then as many of these in BF16. `bits`: average
    bits per weight; scales of whole matrices do not count."""
    forms = dict.fromkeys(elements, 0)
    room = (bits - BITS[0]) * sum(elements.values())
    for form in (1, 2):
        step = BITS[form] - BITS[form - 1]
        for layer in order:
            if forms[layer] == form - 1 and elements[layer] * step <= room:
                forms[layer] = form
                room -= elements[layer] * step
    return forms


def orders(layers, count):
    """Name -> order in which layers become FP8."""
    number = {layer: int(re.search(r"\.(\d+)\.", layer)[1]) for layer in layers}
    last = max(number.values())
    ends = sorted(layers, key=lambda layer: (min(number[layer], last - number[layer]), number[layer]))
    found = {"first and last layers": ends,
             "attention": sorted(ends, key=lambda layer: ".self_attn." not in layer)}
    for seed in range(count):
        found[f"random {seed + 1}"] = random.Random(seed).sample(sorted(layers), len(layers))
    return found


def choices(options, temporary):
    """The model with the forms of each layer; by number of bits and name, the form of each layer."""
    statistics = options.statistics
    if statistics is None and options.calibration:
        statistics = temporary / "statistics"
        calibrate(options.model, options.calibration, statistics, windows=options.calibration_windows,
                  device=options.device)
    (temporary / "eight.yaml").write_text(EIGHT)
    given = dict(statistics=statistics, method=options.method) if statistics else {}
    nvfp4.quantize_checkpoint(options.model, temporary / "four", **given)
    nvfp4.quantize_checkpoint(options.model, temporary / "eight", recipe=temporary / "eight.yaml", **given)
    model = Layers(options.model, [Checkpoint(temporary / f) for f in ("four", "eight")], options.device)
    found = {}
    for bits in options.bits:
        nvfp4.quantize_checkpoint(options.model, temporary / f"{bits}", bits=bits, **given)
        found[bits] = {"chosen": forms_of(temporary / f"{bits}", model.elements)}
        for name, order in orders(model.elements, options.random).items():
            found[bits][name] = filled(order, model.elements, bits)
    return model, found


def measure(model, plain, tokens, found, options):
    """By number of bits and name: the divergence of each window."""
    columns, start, done = {}, time.monotonic(), 0
    for batch in tokens.to(options.device).split(options.batch):
        target = batch[:, 1:, None]
        with torch.no_grad():
            p = torch.log_softmax(plain(batch[:, :-1]).logits.float(), -1)
        for bits, ways in found.items():
            for name, forms in ways.items():
                model.use(forms)
                q = model.log_probabilities(batch[:, :-1])
                columns.setdefault((bits, name), []).append(columns_of(p, q, target)[0])
        done += len(batch)
        passed = time.monotonic() - start
        print(f"{done} of {len(tokens)} windows: {passed:.0f} s, {passed * (len(tokens) / done - 1):.0f} s left",
              file=sys.stderr, flush=True)
    return {key: np.concatenate(parts) * 1e3 for key, parts in columns.items()}


def rows(columns, found, model):
    """Returns, for each number of bits, the choice, the choices it is compared with, and the best and the mean of the
    random ones."""
    bootstrap = Bootstrap(len(next(iter(columns.values()))))
    data = []
    for bits, ways in found.items():
        chosen = columns[bits, "chosen"]
        for name, forms in ways.items():
            column = columns[bits, name]
            mean, error = bootstrap.mean(column)
            less, less_error = bootstrap.ratio(chosen, column)
            error_of_less = bootstrap.error(lambda a, b: a - b, column, chosen)
            data.append(dict(bits=bits, name=name, used=model.bits(forms), divergence=mean, divergence_error=error,
                             chosen_to_it=less, chosen_to_it_error=less_error, forms=forms,
                             errors_below=float((column - chosen).mean() / max(error_of_less, 1e-12)),
                             windows=column.tolist()))
    return data


def lines(data):
    yield "| bits | in FP8 first | bits used | divergence, 10⁻³ nat | of the choice to it | standard errors |"
    yield "|---|---|---|---|---|---|"
    for bits in dict.fromkeys(row["bits"] for row in data):
        of = [row for row in data if row["bits"] == bits]
        drawn = sorted((r for r in of if r["name"].startswith("random")), key=lambda r: r["divergence"])
        for row in [r for r in of if r not in drawn] + drawn[:1] + drawn[-1:]:
            name = row["name"]
            if row in drawn:
                name = f"{'best' if row is drawn[0] else 'worst'} of {len(drawn)} random orders"
            yield (f"| {bits:g} | {name} | {row['used']:.3f} | {row['divergence']:.2f} ± {row['divergence_error']:.2f} "
                   f"| {row['chosen_to_it']:.3f} ± {row['chosen_to_it_error']:.3f} | {row['errors_below']:.1f} |")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", required=True, help="a folder that transformers loads")
    a.add_argument("--text", required=True, nargs="+", metavar="FILE",
                   help="documents separated by U+001E; a table for each file")
    a.add_argument("--calibration", metavar="FILE", help="text that the choice is made by, of the same form")
    a.add_argument("--calibration-windows", type=int, default=64, help="windows of 512 tokens of it (64)")
    a.add_argument("--statistics", metavar="FILE", help="instead of it: what nvfp4 calibrate wrote")
    a.add_argument("--method", default="weighted", help="with statistics (weighted)")
    a.add_argument("--bits", type=float, nargs="+", default=[5, 5.5, 6])
    a.add_argument("--random", type=int, default=20, metavar="N", help="orders drawn at random (20)")
    a.add_argument("--windows", type=int, default=8, help="of 512 tokens of the text (8)")
    a.add_argument("--batch", type=int, default=4, help="windows at a time (4)")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    options = a.parse_args()
    torch.set_float32_matmul_precision("highest")
    with tempfile.TemporaryDirectory() as temporary:
        model, found = choices(options, Path(temporary))
    plain = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32,
                                                 experts_implementation="eager").eval().to(options.device)
    tokenizer, tables = AutoTokenizer.from_pretrained(options.model), {}
    for text in options.text:
        tokens = windows(text, tokenizer, options.windows)
        data = rows(measure(model, plain, tokens, found, options), found, model)
        print(f"\n{model_name(options.model)}, {Path(text).name}: {len(tokens)} windows\n")
        print("\n".join(lines(data)), flush=True)
        tables[Path(text).name] = data
        if options.json:
            Path(options.json).write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
