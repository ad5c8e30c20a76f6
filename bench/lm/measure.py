#!/usr/bin/env python3
"""Measures the accuracy of a language model on real text for each method.

Quantizes a BF16 model with each method, and prints the mean Kullback-Leibler divergence of its
predictions from the BF16 model's (millinats per token, FP32 arithmetic), the change of perplexity, and
the ratio to `max` in the same run, with their standard errors by a paired bootstrap over windows.

  measure.py --models MODEL... --text FILE [--text FILE]      validation, unseen, ... : one table each
  measure.py ... --calibration FILE                           also the methods that need data
  measure.py --models MODEL --text FILE --other NAME=FOLDER   also a folder that another tool made (peers.py)
  measure.py ... --redraw 4    mse also with other global scales: what differs though the squared error is the same

Needs PyTorch, transformers 5, safetensors and this package.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer

import nvfp4
from model import FOUR_OVER_SIX, Rescaled, Variant, at_random, model_name, of_modelopt
from nvfp4.calibrate import calibrate
from nvfp4.evaluate.comparison import columns_of
from nvfp4.evaluate.resampling import Bootstrap
from nvfp4.evaluate.text import windows

#: How weights are quantized: options of quantize_checkpoint().
WEIGHTS = {
    "max": dict(method="max"),
    "four_over_six": dict(method="four_over_six"),
    "mse": dict(method="mse"),
}
#: The same with what calibration saw.
CALIBRATED = {
    "weighted": dict(method="weighted"),
    "gptq": dict(method="gptq:0"),
    "gptq + descent": dict(method="gptq"),
}
#: How activations are quantized, each row with a global scale; None: not at all (W4A16).
ACTIVATIONS = {"BF16": None, "max": "max", "mse": "mse", "four_over_six": "four_over_six", **{n: n for n in FOUR_OVER_SIX}}


def quantize(model, options, temporary):
    """A folder for each way to quantize the weights."""
    ways, statistics = dict(WEIGHTS), None
    if options.calibration and (not options.methods or CALIBRATED.keys() & set(options.methods)):
        statistics = temporary / "statistics.safetensors"
        calibrate(model, options.calibration, statistics, keep_gram=True, windows=options.calibration_windows,
                  device=options.device)
        ways |= CALIBRATED
    folders = {}
    for name, way in ways.items():
        if options.methods and name not in options.methods:
            continue
        start = time.monotonic()
        folders[name] = temporary / name.replace(" ", "")
        given = {"statistics": statistics} if name in CALIBRATED else {}
        nvfp4.quantize_checkpoint(model, folders[name], **way, **given)
        print(f"{name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    return folders


def measure(model, text, count, variants, methods, options):
    """The loss of the BF16 model by window, and the columns of each method."""
    tokens = windows(text, AutoTokenizer.from_pretrained(model), count)
    batches = tokens.to(options.device).split(options.batch)
    plain = Variant(model, None, options.device)
    columns = {method: [] for method in methods}
    losses = []
    # A batch at a time, so that the logits of the reference need not be kept.
    for batch in batches:
        p = plain.log_probabilities(batch[:, :-1])
        target = batch[:, 1:, None]
        losses.append(-p.gather(-1, target).mean((1, 2)).double().cpu())
        for weights, activations in methods:
            variants[weights].inputs.quantizer = activations
            q = variants[weights].log_probabilities(batch[:, :-1])
            columns[weights, activations].append(columns_of(p, q, target))
    return torch.cat(losses).numpy(), {m: np.concatenate(c, 1) for m, c in columns.items()}


def table(loss, columns):
    """Lines of the table, and the same figures as data."""
    bootstrap = Bootstrap(len(loss))
    lines = [
        "| weights | activations | divergence | of max | Δ perplexity | top-1 agreement |",
        "|---|---|---|---|---|---|",
    ]
    data = []
    for (weights, activations), (divergence, loss_q, same) in columns.items():
        base = columns.get(("max", None if activations is None else "max"), columns[next(iter(columns))])[0]
        mean, error = bootstrap.mean(divergence * 1e3)
        ratio, ratio_error = bootstrap.ratio(divergence, base)
        change, change_error = bootstrap.perplexity_change(loss_q, loss)
        lines.append(
            f"| {weights} | {activations or 'BF16'} | {mean:.2f} ± {error:.2f} | {ratio:.3f} ± {ratio_error:.3f} "
            f"| {change:+.2f} ± {change_error:.2f} % | {same.mean() * 100:.2f} % |"
        )
        data.append(
            dict(weights=weights, activations=activations, divergence=mean, divergence_error=error, ratio=ratio,
                 ratio_error=ratio_error, perplexity_change=change, perplexity_change_error=change_error,
                 same_first_choice=float(same.mean()), by_window=[round(d, 7) for d in divergence.tolist()])
        )
    return lines, data


def arguments(given=None):
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", nargs="+", required=True, metavar="MODEL", help="folders that transformers loads")
    a.add_argument("--text", action="append", required=True, metavar="FILE", help="documents separated by U+001E")
    a.add_argument("--calibration", metavar="FILE", help="text for the methods that need data, of the same form")
    a.add_argument("--calibration-windows", type=int, default=256, help="windows of 512 tokens of it (256)")
    a.add_argument("--windows", type=int, nargs="+", default=[384], metavar="N",
                   help="windows of 512 tokens, of all texts or of each (384)")
    a.add_argument("--batch", type=int, default=8, help="windows at a time (8)")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a.add_argument("--other", action="append", default=[], metavar="NAME=FOLDER",
                   help="a quantized folder to measure beside ours; for one model")
    a.add_argument("--methods", metavar="NAME", nargs="+", choices=[*WEIGHTS, *CALIBRATED],
                   help=f"some of {', '.join([*WEIGHTS, *CALIBRATED])} (all); max is always among them")
    a.add_argument("--redraw", type=int, default=0, metavar="N",
                   help="mse N times more, with global scales of random factors from 1 to 2")
    a.add_argument("--modelopt-scale", action="store_true", help="mse once more, with ModelOpt's global scale")
    a.add_argument("--activations", metavar="NAME", nargs="+", choices=ACTIVATIONS, default=["BF16", "max", "mse"],
                   help=f"some of {', '.join(ACTIVATIONS)} (BF16 max mse)")
    a.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    options = a.parse_args(given)
    if options.other and len(options.models) > 1:
        a.error("--other: is for one model, not for several")
    if len(options.windows) == 1:
        options.windows *= len(options.text)
    if len(options.windows) != len(options.text):
        a.error(f"--windows: {len(options.windows)} numbers for {len(options.text)} texts")
    if options.methods:
        options.methods = {"max", *options.methods} | ({"mse"} if options.redraw or options.modelopt_scale else set())
    return options


def main(given=None):
    options = arguments(given)
    torch.set_float32_matmul_precision("highest")
    everything = []
    for model in options.models:
        with tempfile.TemporaryDirectory() as temporary:
            folders = quantize(model, options, Path(temporary))
            folders |= dict(pair.split("=", 1) for pair in options.other)
            if options.redraw:
                folders |= {f"mse, redrawn {seed + 1}": Rescaled(folders["mse"], model, "mse", at_random(seed))
                            for seed in range(options.redraw)}
            if options.modelopt_scale:
                folders["mse, amax / 2688"] = Rescaled(folders["mse"], model, "mse", of_modelopt)
            variants = {name: Variant(model, folder, options.device) for name, folder in folders.items()}
        methods = [(weights, ACTIVATIONS[name]) for name in options.activations for weights in folders]
        for text, count in zip(options.text, options.windows):
            loss, columns = measure(model, text, count, variants, methods, options)
            lines, data = table(loss, columns)
            print(f"\n{model_name(model)}, {Path(text).name}: {len(loss)} windows, "
                  f"BF16 perplexity {np.exp(loss.mean()):.3f}\n")
            print("\n".join(lines), flush=True)
            everything.append(dict(model=Path(model).name, text=Path(text).name, windows=len(loss),
                                   perplexity=float(np.exp(loss.mean())), rows=data))
    if options.json:
        Path(options.json).write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
