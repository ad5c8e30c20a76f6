#!/usr/bin/env python3
"""GPTQ with descent on one core, part by part, beside OpenBLAS's time for the same operations.

  OPENBLAS_NUM_THREADS=1 NVFP4_THREADS=1 bench/gptq_cpu.py [--rows N] [--cols K]

One weight [N, K] with the Gram matrix of correlated inputs goes through quantize_checkpoint; parts are
differences of runs. OpenBLAS is NumPy's matrix product, in FP64 for the factors and in FP32 for the rest, at the
rate of a product [N, K] x [K, K]. Seconds are of processor time, so that other programs disturb less; the
minimum of some runs, which take turns. Needs NumPy, SciPy, PyTorch, safetensors and this package.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.linalg
import torch
from safetensors.torch import save_file

import nvfp4
from nvfp4.calibrate import Statistics

MODULE = "model.layers.0.mlp.down_proj"


def gram_of(cols):
    """Returns the Gram matrix of inputs whose channels are correlated and differ in size."""
    random = np.random.default_rng(1)
    x = random.standard_normal((2 * cols, cols), np.float32)
    x[:, 1:] += 0.5 * x[:, :-1]
    x *= np.exp(random.standard_normal(cols, np.float32) / 2)
    return x.T @ x


def write(folder, rows, cols, gram):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
    weight = torch.randn(rows, cols, generator=torch.Generator().manual_seed(2)) * 0.02
    save_file({f"{MODULE}.weight": weight.bfloat16()}, folder / "model.safetensors")
    statistics = Statistics()
    statistics.tensors = {
        f"{MODULE}.diag": torch.from_numpy(gram.diagonal().astype(np.float64)),
        f"{MODULE}.count": torch.tensor([2.0 * cols], dtype=torch.float64), f"{MODULE}.amax": torch.ones(1),
        f"{MODULE}.gram": torch.from_numpy(gram[np.triu_indices(cols)])}
    statistics.save(folder / "statistics")


def seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rows", type=int, default=2048, metavar="N")
    a.add_argument("--cols", type=int, default=2048, metavar="K")
    a.add_argument("--runs", type=int, default=3)
    options = a.parse_args()
    n, k = options.rows, options.cols
    if {os.environ.get(v) for v in ("OPENBLAS_NUM_THREADS", "NVFP4_THREADS")} != {"1"}:
        a.error("OPENBLAS_NUM_THREADS and NVFP4_THREADS must be 1, so that processor time is that of one core")
    gram = gram_of(k)
    left = np.random.default_rng(3).standard_normal((n, k), np.float32)
    square = np.random.default_rng(4).standard_normal((k, k), np.float32)
    wide = square.astype(np.float64)
    damped = gram.astype(np.float64) + 0.05 * np.mean(gram.diagonal()) * np.eye(k)
    with tempfile.TemporaryDirectory() as at:
        at = Path(at)
        write(at / "few", 16, k, gram)
        write(at / "all", n, k, gram)

        def quantize(name, **given):
            folder = at / name
            nvfp4.quantize_checkpoint(folder, at / "out", overwrite=True, **given,
                                      **({"statistics": folder / "statistics"} if given["method"].startswith("gptq") else {}))

        runs = {
            "mse": lambda: quantize("all", method="mse"),
            "few": lambda: quantize("few", method="gptq:0"),
            **{f"sweeps {s}": lambda s=s: quantize("all", method=f"gptq:{s}") for s in (0, 1, 4)},
            "dgemm": lambda: wide @ wide,
            "sgemm": lambda: left @ square,
            "lapack": lambda: scipy.linalg.lapack.dtrtri(scipy.linalg.lapack.dpotrf(damped, lower=1)[0], lower=1),
        }
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(options.runs):
            for name, run in runs.items():
                best[name] = min(best[name], seconds(run))
    double, single = 2 * k**3 / best["dgemm"], 2 * n * k * k / best["sgemm"]
    print(f"[{n}, {k}], one core; OpenBLAS: FP64 {double / 1e9:.1f} GFLOP/s, FP32 {single / 1e9:.1f}; load "
          f"{os.getloadavg()[0]:.1f}")
    print(f"dpotrf and dtrtri: {best['lapack']:.3f} s; plain mse, reading and writing: {best['mse']:.3f} s")
    print("| part | operations | ours, s | OpenBLAS, s | ratio |\n|---|---|---|---|---|")
    parts = (("factors of H, FP64", 2 / 3 * k**3, best["few"], double),
             # The guard measures three candidates before descent: a product with H each.
             ("GPTQ, three errors", 7 * n * k * k, best["sweeps 0"] - best["few"], single),
             ("first sweep of descent", 2 * n * k * k, best["sweeps 1"] - best["sweeps 0"], single),
             ("up to four sweeps", 8 * n * k * k, best["sweeps 4"] - best["sweeps 0"], single))
    for name, flop, ours, rate in parts:
        print(f"| {name} | {flop / 1e9:.1f} G | {ours:.3f} | {flop / rate:.3f} | {ours / (flop / rate):.1f} |")
    flop = parts[0][1] / double + (parts[1][1] + parts[3][1]) / single
    print(f"| all | | {best['sweeps 4']:.3f} | {flop:.3f} | {best['sweeps 4'] / flop:.1f} |")


if __name__ == "__main__":
    main()
