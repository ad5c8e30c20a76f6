#!/usr/bin/env python3
"""Measures the choice of `--w4a4`: its KL divergence, and that of other choices with the same share.

Weights are quantized by gptq. A layer (q, k and v together; gate and up; all experts of a layer) is W4A4, with activations
by `mse` and a global scale for each row, or W4A16. The W4A4 layers are those that `nvfp4 quantize --w4a4` chooses, or as
many as the share of multiplications has room for, taken in another order: those of a pattern, or at random.

  budget.py --model MODEL --text FILE... --calibration FILE --share 0.75 0.5 --windows 8

The tables are printed; --json has the divergence of each window and the W4A4 layers of each choice. Needs PyTorch,
transformers 5, safetensors and this package.
"""

import tempfile
from pathlib import Path

import torch
from safetensors import safe_open

import nvfp4
from compared import compare, layer_of, numbers_of, parser, random_orders
from model import Experts, Linear, QuantizedInput, Variant
from nvfp4.calibrate import Statistics, calibrate


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
    number = numbers_of(layers)
    last = max(number.values())
    middle = sorted(layers, key=lambda layer: -min(number[layer], last - number[layer]))
    chosen = {n for n in range(last + 1) if int((n + 1) * share + 1e-9) > int(n * share + 1e-9)}
    return {"MLP": sorted(middle, key=lambda layer: ".mlp." not in layer),
            "gate and up": sorted(middle, key=lambda layer: ".gate_up" not in layer),
            "attention": sorted(middle, key=lambda layer: ".self_attn." not in layer),
            "all but the first and last layers": middle,
            "every k-th layer": sorted(middle, key=lambda layer: number[layer] not in chosen),
            **random_orders(layers, count)}


def chosen(options, statistics, share, temporary):
    """Returns the W4A4 layers that `nvfp4 quantize --w4a4` chooses."""
    out = temporary / f"w4a4-{share}"
    nvfp4.quantize_checkpoint(options.model, out, method="gptq:0", statistics=statistics, w4a4=share)
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


def main():
    a = parser(__doc__, 256, "nvfp4 calibrate --keep-gram", needs_data=True)
    a.add_argument("--share", type=float, nargs="+", default=[0.75, 0.5])
    options = a.parse_args()
    torch.set_float32_matmul_precision("highest")
    with tempfile.TemporaryDirectory() as temporary:
        model, found = choices(options, Path(temporary))
    compare(options, model, found, model.share, "share", "W4A4")


if __name__ == "__main__":
    main()
