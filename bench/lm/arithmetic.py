#!/usr/bin/env python3
"""Measures the KL divergence of checkpoints from their model with `arithmetic = fp8`, beside exact arithmetic.

  arithmetic.py --model MODEL --text FILE CHECKPOINT...

Checkpoints are W4A16 and run on their packed weights, the model runs in FP32. Needs a Hopper GPU, PyTorch, transformers 5
and this package.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import transformers

import nvfp4.transformers  # noqa: F401 (registers the format)
from nvfp4.evaluate.comparison import columns_of, log_probabilities
from nvfp4.evaluate.resampling import Bootstrap
from nvfp4.evaluate.text import windows
from nvfp4.torch import Nvfp4Linear


def load(folder, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).cuda().eval()


@torch.no_grad()
def divergence(model, plain, tokens, batch):
    """Returns the KL divergence of each window in millinats."""
    parts = []
    for part in tokens.cuda().split(batch):
        p, q = (log_probabilities(one(part[:, :-1]).logits) for one in (plain, model))
        parts.append(columns_of(p, q, part[:, 1:, None])[0])
    return np.concatenate(parts) * 1e3


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    a.add_argument("--model", required=True, help="the unquantized folder")
    a.add_argument("--text", required=True, metavar="FILE", help="documents separated by U+001E")
    a.add_argument("--windows", type=int, default=96, help="number of windows of 512 tokens (96)")
    a.add_argument("--batch", type=int, default=24, help="number of windows at a time (24)")
    options = a.parse_args()
    tokens = windows(options.text, transformers.AutoTokenizer.from_pretrained(options.model), options.windows)
    plain, bootstrap = load(options.model, torch.float32), Bootstrap(len(tokens))
    print("| weights | layers | exact | fp8 | ratio |\n|---|---|---|---|---|")
    for folder in options.checkpoints:
        model, found = load(folder, torch.bfloat16), []
        layers = [module for module in model.modules() if isinstance(module, Nvfp4Linear)]
        for arithmetic in ("exact", "fp8"):
            for layer in layers:
                layer.arithmetic = arithmetic
            found.append(divergence(model, plain, tokens, options.batch))
        exact, fp8 = found
        ratio, error = bootstrap.ratio(fp8, exact)
        print(f"| {Path(folder).name} | {len(layers)} | {exact.mean():.2f} | {fp8.mean():.2f} | {ratio:.3f} ± {error:.3f} |", flush=True)


if __name__ == "__main__":
    main()
