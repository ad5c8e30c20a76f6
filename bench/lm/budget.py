#!/usr/bin/env python3
"""Measures the choice of `--w4a4`: its KL divergence, and that of other choices with the same share.

Weights are quantized by gptq. A layer (q, k and v together; gate and up; all experts of a layer) is W4A4, with activations
by `mse` and a global scale for each row, or W4A16. The W4A4 layers are those that `nvfp4 quantize --w4a4` chooses, or as
many as the share of multiplications has room for, taken in another order: those of a pattern, or at random.

  budget.py --model MODEL --text FILE... --calibration FILE --share 0.75 0.5 --windows 8

The tables are printed; --json has the divergence of each window and the W4A4 layers of each choice. Needs PyTorch, transformers 5, safetensors and this package.
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
from transformers import AutoTokenizer

import nvfp4
from choices import layer_of
from model import Experts, Linear, QuantizedInput, Variant, model_name
from nvfp4.calibrate import Statistics, calibrate
from nvfp4.evaluate.comparison import columns_of
from nvfp4.evaluate.resampling import Bootstrap
from nvfp4.evaluate.text import windows

KL = 1e3  # millinats


class Layers(Variant):
    """A model with quantized weights, whose layers each have inputs in BF16 or in NVFP4. `cost`: multiplications of each
    layer."""

    def __init__(self, folder, quantized, statistics, device):
        super().__init__(folder, quantized, device)
        self.inputs, self.cost = {}, {}
        for name, module in self.model.named_modules():
            if isinstance(module, (Linear, Experts)):
                layer = layer_of(f"{name}.0" if isinstance(module, Experts) else name)
                module.quantize = self.inputs.setdefault(layer, QuantizedInput())
                matrices = [("", module.weight)] if isinstance(module, Linear) else [
                    (f".{e}.{part}", stack[e]) for part, stack in (("gate_proj", module.gate_up), ("down_proj", module.down))
                    for e in range(len(stack))]
                self.cost[layer] = self.cost.get(layer, 0) + sum(
                    m.numel() * statistics.tensors[f"{name}{end}.count"].item() for end, m in matrices)

    def use(self, layers):
        """Sets the layers whose inputs are quantized."""
        for layer, inputs in self.inputs.items():
            inputs.quantizer = "mse" if layer in layers else None

    def share(self, layers):
        return sum(self.cost[layer] for layer in layers) / sum(self.cost.values())


def filled(order, cost, share):
    """Returns layers in that order, as many as the share of all multiplications has room for."""
    found, room = [], share * sum(cost.values()) * (1 + 1e-9)
    for layer in order:
        if cost[layer] <= room:
            found.append(layer)
            room -= cost[layer]
    return found


def orders(layers, share, count):
    """Returns name -> order in which layers become W4A4."""
    number = {layer: int(re.search(r"\.(\d+)\.", layer)[1]) for layer in layers}
    last = max(number.values())
    middle = sorted(layers, key=lambda layer: -min(number[layer], last - number[layer]))
    chosen = {n for n in range(last + 1) if int((n + 1) * share + 1e-9) > int(n * share + 1e-9)}
    found = {"MLP": sorted(middle, key=lambda layer: ".mlp." not in layer),
             "gate and up": sorted(middle, key=lambda layer: ".gate_up" not in layer),
             "attention": sorted(middle, key=lambda layer: ".self_attn." not in layer),
             "all but the first and last layers": middle,
             "every k-th layer": sorted(middle, key=lambda layer: number[layer] not in chosen)}
    for seed in range(count):
        found[f"random {seed + 1}"] = random.Random(seed).sample(sorted(layers), len(layers))
    return found


def chosen(options, statistics, share, temporary):
    """Returns the W4A4 layers that `nvfp4 quantize --w4a4` chooses."""
    out = temporary / f"w4a4-{share}"
    nvfp4.quantize_checkpoint(options.model, out, method="gptq:0", statistics=statistics, w4a4=share)
    from safetensors import safe_open
    names = [name for file in out.glob("*.safetensors") for name in safe_open(file, "pt").keys()]
    return sorted({layer_of(name.removesuffix(".input_scale")) for name in names if name.endswith(".input_scale")})


def choices(options, temporary):
    """Returns the model, and by share and name the W4A4 layers."""
    path = options.statistics or temporary / "statistics"
    if options.statistics is None:
        calibrate(options.model, options.calibration, path, keep_gram=True, windows=options.calibration_windows,
                  device=options.device)
    nvfp4.quantize_checkpoint(options.model, temporary / "gptq", method="gptq", statistics=path)
    model = Layers(options.model, temporary / "gptq", Statistics.load(path), options.device)
    found = {(1, "all W4A4"): list(model.cost), (0, "all W4A16"): []}
    for share in options.share:
        found[share, "chosen"] = chosen(options, path, share, temporary)
        for name, order in orders(model.cost, share, options.random).items():
            found[share, name] = filled(order, model.cost, share)
    return model, found


def measure(model, plain, tokens, found, options):
    """Returns the divergence of each window by share and name."""
    columns, start, done = {}, time.monotonic(), 0
    for batch in tokens.to(options.device).split(options.batch):
        p, target = plain.log_probabilities(batch[:, :-1]), batch[:, 1:, None]
        for key, layers in found.items():
            model.use(layers)
            q = model.log_probabilities(batch[:, :-1])
            columns.setdefault(key, []).append(columns_of(p, q, target)[0])
        done += len(batch)
        passed = time.monotonic() - start
        print(f"{done} of {len(tokens)} windows: {passed:.0f} s, {passed * (len(tokens) / done - 1):.0f} s left",
              file=sys.stderr, flush=True)
    return {key: np.concatenate(parts) * KL for key, parts in columns.items()}


def rows(columns, found, model):
    """Returns the figures of each choice. `errors_below`: paired standard errors that the budget's choice is below it."""
    bootstrap, data = Bootstrap(len(next(iter(columns.values())))), []
    for (share, name), column in columns.items():
        mean, error = bootstrap.mean(column)
        less = column - columns.get((share, "chosen"), column)
        data.append(dict(share=share, name=name, used=model.share(found[share, name]), divergence=mean,
                         divergence_error=error, layers=found[share, name], windows=column.tolist(),
                         errors_below=float(less.mean() / max(bootstrap.mean(less)[1], 1e-12))))
    return data


def lines(data):
    yield "| share | W4A4 | share used | KL divergence, millinats | standard errors above the choice |"
    yield "|---|---|---|---|---|"
    for share in dict.fromkeys(row["share"] for row in data):
        of = [row for row in data if row["share"] == share]
        drawn = sorted((r for r in of if r["name"].startswith("random")), key=lambda r: r["divergence"])
        for row in [r for r in of if r not in drawn] + drawn[:1] + drawn[-1:]:
            name = row["name"]
            if row in drawn:
                name = f"{'best' if row is drawn[0] else 'worst'} of {len(drawn)} random orders"
            yield (f"| {share:g} | {name} | {row['used']:.3f} | {row['divergence']:.2f} ± {row['divergence_error']:.2f} "
                   f"| {row['errors_below']:.1f} |")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", required=True, help="a folder that transformers loads")
    a.add_argument("--text", required=True, nargs="+", metavar="FILE",
                   help="documents separated by U+001E; a table for each file")
    a.add_argument("--calibration", metavar="FILE", help="text that the choice is made by, of the same form")
    a.add_argument("--calibration-windows", type=int, default=256, help="windows of 512 tokens of it (256)")
    a.add_argument("--statistics", metavar="FILE", help="instead of it: what nvfp4 calibrate --keep-gram wrote")
    a.add_argument("--share", type=float, nargs="+", default=[0.75, 0.5])
    a.add_argument("--random", type=int, default=20, metavar="N", help="orders drawn at random (20)")
    a.add_argument("--windows", type=int, default=[8], nargs="+", help="of 512 tokens of each text (8)")
    a.add_argument("--batch", type=int, default=4, help="windows at a time (4)")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    options = a.parse_args()
    torch.set_float32_matmul_precision("highest")
    with tempfile.TemporaryDirectory() as temporary:
        model, found = choices(options, Path(temporary))
    plain = Variant(options.model, None, options.device)
    tokenizer, tables = AutoTokenizer.from_pretrained(options.model), {}
    for number, text in enumerate(options.text):
        tokens = windows(text, tokenizer, options.windows[min(number, len(options.windows) - 1)])
        data = rows(measure(model, plain, tokens, found, options), found, model)
        print(f"\n{model_name(options.model)}, {Path(text).name}: {len(tokens)} windows\n")
        print("\n".join(lines(data)), flush=True)
        tables[Path(text).name] = data
        if options.json:
            Path(options.json).write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
