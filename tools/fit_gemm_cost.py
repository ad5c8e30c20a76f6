#!/usr/bin/env python3
"""Fits the cost of each GEMM kernel of sm_90 to the measurements of a benchmark of all kernels.

usage: fit_gemm_cost.py JSON...    replaces the costs in src/backends/cuda/gemm/sm90/kernels.h

nvfp4_cuda_gemm_bench --shape fitted --kernels each --json JSON writes JSON.
A cost is a sum of five terms (see cost_model.cc): least squares of the relative errors, for each
tile and split by itself. Kernels that were not measured keep their costs.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np

MULTIPROCESSORS = 132
NAME = re.compile(r"sm90_(wgmma|mma)_m(\d+)n(\d+)k(\d+)(?:_splitk(\d+))?(?:_dependents\d+)?"
                  r"(?:_prefetch\d+)?(?:_streamk(\d+))?$")
STREAM_K_GAIN = 0.7  # of the time for the steps that stream-K blocks take
FULL = 0.35  # share of the time of a last round of second blocks that does not fall with their number
# No coefficient is below 0. That of a megabyte is at most half of what reading one takes: more of a
# block's time would pass for it, which grows with the bytes, too, and small products be too cheap.
MOST = [np.inf, np.inf, np.inf, 0.1, np.inf]

KERNELS = Path(__file__).parents[1] / "src/backends/cuda/gemm/sm90/kernels.h"
ROW = re.compile(r"(\.m = (\d+), \.n = (\d+),[^;]*?\.costs = )\{(\{.*?\})\}\},", re.S)


def ceil_div(a, b):
    return -(-a // b)


def usable(split_k):
    """Clusters of several blocks do not span GPCs."""
    left = {1: 0, 2: 0, 4: MULTIPROCESSORS // 16, 8: MULTIPROCESSORS // 8}
    return MULTIPROCESSORS - left[split_k]


def terms(n, k, m, kernel):
    """Returns the factors of the five coefficients."""
    kind, tile_m, tile_n, stage_k, split_k, stream_k = kernel
    blocks = ceil_div(n, tile_n) * ceil_div(m, tile_m) * split_k
    if kind == "mma":
        steps, at_once = ceil_div(ceil_div(k, 64), 256 // tile_n) / 2, 2
    else:
        steps = ceil_div(k, 64) * 64 / stage_k / split_k
        at_once = 2 if tile_n <= 128 and tile_m <= 32 else 1
    rounds = ceil_div(blocks, usable(split_k))
    if at_once == 2 and rounds % 2 == 0:
        rounds = FULL * rounds + (1 - FULL) * blocks / usable(split_k)
    kept = 1 - STREAM_K_GAIN * stream_k / max(1, steps)
    megabytes = ceil_div(n, 64) * ceil_div(k, 64) * 64 * 36 * 1e-6
    return [1, rounds, rounds * steps * kept, megabytes,
            ceil_div(blocks, usable(split_k) * at_once) - 1]


def bounded_least_squares(a, b):
    gram, right = a.T @ a, a.T @ b
    x = np.zeros(a.shape[1])
    for _ in range(500):
        for j in range(len(x)):
            if gram[j, j] > 0:
                x[j] = min(MOST[j], max(0.0, x[j] + (right[j] - gram[j] @ x) / gram[j, j]))
    return x


def measurements(files):
    """{(tile m, tile n, split_k): [(terms, microseconds)]}"""
    measured = {}
    for name in files:
        with open(name, encoding="utf-8") as file:
            shapes = json.load(file)["shapes"]
        for shape in shapes:
            for row in shape["rows"]:
                for kernel, us in (row["kernels"] or {}).items():
                    match = NAME.match(kernel)
                    kind, *numbers = match.groups(default="0")
                    tile_m, tile_n, stage_k, split_k, stream_k = map(int, numbers)
                    split_k = max(1, split_k)
                    found = terms(shape["n"], shape["k"], row["m"],
                                  (kind, tile_m, tile_n, stage_k, split_k, stream_k))
                    measured.setdefault((tile_m, tile_n, split_k), []).append((found, us))
    return measured


def fitted(points):
    matrix = np.array([t for t, _ in points], dtype=float)
    times = np.array([us for _, us in points])
    return bounded_least_squares(matrix / times[:, None], np.ones(len(times)))


def replaced(text, measured):
    """The text of kernels.h with other costs."""
    def row(match):
        head, m, n, costs = match.groups()
        rows = [cost.strip() for cost in re.findall(r"\{[^{}]*\}", costs)]
        for i in range(len(rows)):
            if points := measured.get((int(m), int(n), 1 << i)):
                if rows[i] != "{}":  # the same tile without split-K may be another kernel
                    rows[i] = "{" + ", ".join(f"{c:.4f}" for c in fitted(points)) + "}"
        return head + "{" + (",\n" + " " * 15).join(rows) + "}},"
    return ROW.sub(row, text)


if __name__ == "__main__":
    KERNELS.write_text(replaced(KERNELS.read_text(encoding="utf-8"), measurements(sys.argv[1:])), encoding="utf-8")
