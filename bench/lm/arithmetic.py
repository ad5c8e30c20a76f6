#!/usr/bin/env python3
"""Measures the KL divergence of checkpoints from their model with `arithmetic = fp8`, beside exact arithmetic.

  arithmetic.py --model MODEL --text FILE CHECKPOINT...

Checkpoints are W4A16 and run on their packed weights, the model runs in FP32. Needs a Hopper GPU, PyTorch, transformers 5
and this package.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import nvfp4.transformers  # noqa: F401 (registers the format)
from compared import measure
from model import Variant
from nvfp4.evaluate.resampling import Bootstrap
from nvfp4.evaluate.text import windows
from nvfp4.torch import Nvfp4Linear


class Packed:
    """A checkpoint on its packed weights."""

    def __init__(self, folder, device):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
        self.layers = [module for module in self.model.modules() if isinstance(module, Nvfp4Linear)]

    def use(self, arithmetic):
        for layer in self.layers:
            layer.arithmetic = arithmetic

    log_probabilities = Variant.log_probabilities


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    a.add_argument("--model", required=True, help="the unquantized folder")
    a.add_argument("--text", required=True, metavar="FILE", help="documents separated by U+001E")
    a.add_argument("--windows", type=int, default=96, help="number of windows of 512 tokens (96)")
    a.add_argument("--batch", type=int, default=24, help="number of windows at a time (24)")
    a.add_argument("--device", default="cuda", help="(cuda)")
    options = a.parse_args()
    tokens = windows(options.text, AutoTokenizer.from_pretrained(options.model), options.windows)
    plain, bootstrap = Variant(options.model, None, options.device), Bootstrap(len(tokens))
    print("| weights | layers | exact | fp8 | ratio |\n|---|---|---|---|---|")
    for folder in options.checkpoints:
        model = Packed(folder, options.device)
        exact, fp8 = measure(model, plain, tokens, {name: name for name in ("exact", "fp8")}, options).values()
        ratio, error = bootstrap.ratio(fp8, exact)
        print(f"| {Path(folder).name} | {len(model.layers)} | {exact.mean():.2f} | {fp8.mean():.2f} | {ratio:.3f} ± {error:.3f} |",
              flush=True)


if __name__ == "__main__":
    main()
