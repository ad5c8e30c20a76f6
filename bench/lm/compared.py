"""The part that choices.py and budget.py share: choices of layers within a budget, compared on the same windows of text."""

import argparse
import json
import random
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer

from model import Variant, model_name
from nvfp4.evaluate.comparison import columns_of
from nvfp4.evaluate.resampling import Bootstrap
from nvfp4.evaluate.text import windows

MILLINATS = 1e3  #: in a nat


def layer_of(module):
    """Returns the name of the layer that loaders build from this module."""
    module = re.sub(r"\.experts\..*", ".experts", module)
    return re.sub(r"\.[qkv]_proj$", ".qkv", re.sub(r"\.(gate|up)_proj$", ".gate_up", module))


def numbers_of(layers):
    """Returns layer -> number of its block."""
    return {layer: int(re.search(r"\.(\d+)\.", layer)[1]) for layer in layers}


def random_orders(layers, count):
    """Returns name -> order of the layers."""
    return {f"random {seed + 1}": random.Random(seed).sample(sorted(layers), len(layers)) for seed in range(count)}


def parser(description, calibration_windows, statistics, needs_data):
    """Returns a parser of the options that both programs have. `statistics`: the command that writes the file."""
    a = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", required=True, help="a folder that transformers loads")
    a.add_argument("--text", required=True, nargs="+", metavar="FILE",
                   help="documents separated by U+001E; a table for each file")
    given = a.add_mutually_exclusive_group(required=needs_data)
    given.add_argument("--calibration", metavar="FILE", help="text that the choice is made by, of the same form")
    given.add_argument("--statistics", metavar="FILE", help=f"the output of {statistics}, in place of --calibration")
    a.add_argument("--calibration-windows", type=int, default=calibration_windows,
                   help=f"number of windows of 512 tokens of --calibration ({calibration_windows})")
    a.add_argument("--random", type=int, default=20, metavar="N", help="number of random orders (20)")
    a.add_argument("--windows", type=int, default=[8], nargs="+", help="number of windows of 512 tokens, for each text (8)")
    a.add_argument("--batch", type=int, default=4, help="number of windows at a time (4)")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    return a


def measure(model, plain, tokens, found, options):
    """Returns (budget, name) -> divergence of each window in millinats. `found`: (budget, name) -> what model.use() takes."""
    columns, start, done = {}, time.monotonic(), 0
    for batch in tokens.to(options.device).split(options.batch):
        p, target = plain.log_probabilities(batch[:, :-1]), batch[:, 1:, None]
        for key, choice in found.items():
            model.use(choice)
            columns.setdefault(key, []).append(columns_of(p, model.log_probabilities(batch[:, :-1]), target)[0])
        done += len(batch)
        passed = time.monotonic() - start
        print(f"{done} of {len(tokens)} windows: {passed:.0f} s, {passed * (len(tokens) / done - 1):.0f} s left",
              file=sys.stderr, flush=True)
    return {key: np.concatenate(parts) * MILLINATS for key, parts in columns.items()}


def rows(columns, found, used):
    """Returns the figures of each choice. `used`: a function of a choice that returns the budget that it takes.
    `errors_above`: paired standard errors that it is above the choice of the program."""
    bootstrap, data = Bootstrap(len(next(iter(columns.values())))), []
    for (budget, name), column in columns.items():
        chosen = columns.get((budget, "chosen"), column)
        mean, error = bootstrap.mean(column)
        ratio, ratio_error = bootstrap.ratio(chosen, column)
        more = column - chosen
        data.append(dict(budget=budget, name=name, used=used(found[budget, name]), divergence=mean, divergence_error=error,
                         chosen_to_it=ratio, chosen_to_it_error=ratio_error, choice=found[budget, name],
                         windows=column.tolist(), errors_above=float(more.mean() / max(bootstrap.mean(more)[1], 1e-12))))
    return data


def lines(data, budget, what):
    """Yields a table. Of the random orders it has the best and the worst."""
    yield f"| {budget} | {what} | {budget} used | KL divergence, millinats | of the choice to it | standard errors above the choice |"
    yield "|---|---|---|---|---|---|"
    for value in dict.fromkeys(row["budget"] for row in data):
        of = [row for row in data if row["budget"] == value]
        drawn = sorted((r for r in of if r["name"].startswith("random")), key=lambda r: r["divergence"])
        for row in [r for r in of if r not in drawn] + drawn[:1] + drawn[1:][-1:]:
            name = row["name"]
            if row in drawn:
                name = f"{'best' if row is drawn[0] else 'worst'} of {len(drawn)} random orders"
            yield (f"| {value:g} | {name} | {row['used']:.3f} | {row['divergence']:.2f} ± {row['divergence_error']:.2f} "
                   f"| {row['chosen_to_it']:.3f} ± {row['chosen_to_it_error']:.3f} | {row['errors_above']:.1f} |")


def compare(options, model, found, used, budget, what):
    """Prints a table for each text, and writes options.json."""
    plain = Variant(options.model, None, options.device)
    tokenizer, tables = AutoTokenizer.from_pretrained(options.model), {}
    for number, text in enumerate(options.text):
        tokens = windows(text, tokenizer, options.windows[min(number, len(options.windows) - 1)])
        data = rows(measure(model, plain, tokens, found, options), found, used)
        print(f"\n{model_name(options.model)}, {Path(text).name}: {len(tokens)} windows\n")
        print("\n".join(lines(data, budget, what)), flush=True)
        tables[Path(text).name] = data
        if options.json:
            Path(options.json).write_text(json.dumps(tables, indent=1) + "\n")
