#!/usr/bin/env python3
"""Measures the choice of `--bits`: its KL divergence, and that of other choices with as many bytes.

A layer (q, k and v together; gate and up; all experts of a layer) is in NVFP4, FP8 or BF16. For each number of bits the
layers in FP8 are those that `nvfp4 quantize --bits` chooses, or as many as have room, taken in another order: the
first and the last layers first, attention first, or at random. What is left makes layers of that order BF16. Weights alone are quantized.

  choices.py --model MODEL --text FILE --calibration FILE --bits 5 5.5 6 --windows 8

The tables are printed; --json has the divergence of each window and the layers of each choice. Needs PyTorch, transformers 5,
safetensors and this package.
"""

import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import nvfp4
from compared import compare, layer_of, numbers_of, parser, random_orders
from model import Checkpoint
from nvfp4.calibrate import calibrate

#: Bits a weight of the forms of a layer: NVFP4, FP8, BF16.
BITS = (4.5, 8, 16)
EIGHT = "rules: [{kind: [attention, mlp, experts, shared_experts, linear], action: fp8}]\n"


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
    """Returns name -> order in which layers become FP8."""
    number = numbers_of(layers)
    last = max(number.values())
    ends = sorted(layers, key=lambda layer: (min(number[layer], last - number[layer]), number[layer]))
    return {"first and last layers": ends, "attention": sorted(ends, key=lambda layer: ".self_attn." not in layer),
            **random_orders(layers, count)}


def choices(options, temporary):
    """Returns the model, and by number of bits and name the form of each layer."""
    statistics = options.statistics
    if options.calibration:
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
        found[bits, "chosen"] = forms_of(temporary / f"{bits}", model.elements)
        for name, order in orders(model.elements, options.random).items():
            found[bits, name] = filled(order, model.elements, bits)
    return model, found


def main():
    a = parser(__doc__, 64, "nvfp4 calibrate", needs_data=False)
    a.add_argument("--method", default="weighted", help="with statistics (weighted)")
    a.add_argument("--bits", type=float, nargs="+", default=[5, 5.5, 6])
    options = a.parse_args()
    torch.set_float32_matmul_precision("highest")
    with tempfile.TemporaryDirectory() as temporary:
        model, found = choices(options, Path(temporary))
    compare(options, model, found, model.bits, "bits", "in FP8 first")


if __name__ == "__main__":
    main()
