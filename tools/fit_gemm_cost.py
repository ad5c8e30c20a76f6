#!/usr/bin/env python3
"""Fits the cost of each GEMM kernel of sm_90 to what a benchmark of all kernels measured.

usage: fit_gemm_cost.py JSON... > src/backends/cuda/gemm/sm90/kernel_costs.cc

JSON is what this writes: nvfp4_cuda_gemm_bench --shape fitted --kernels each --json JSON
A cost is a sum of five terms (see cost_model.cc): least squares of the relative errors, for each
tile and split by itself.
"""

import json
import re
import sys

import numpy as np

MULTIPROCESSORS = 132
NAME = re.compile(r"sm90_(wgmma|mma)_m(\d+)n(\d+)k(\d+)(?:_splitk(\d+))?(?:_dependents\d+)?"
                  r"(?:_prefetch\d+)?(?:_streamk(\d+))?$")
STREAM_K_GAIN = 0.7  # of the time for the steps that stream-K blocks take
# No coefficient is below 0. That of a megabyte is at most half of what reading one takes: more of a
# block's time would pass for it, which grows with the bytes, too, and small products be too cheap.
MOST = [np.inf, np.inf, np.inf, 0.1, np.inf]

HEAD = """\
// As tools/fit_gemm_cost.py writes it, from measurements on an H200: docs/benchmarks.md says which.
#include "backends/cuda/gemm/sm90/kernel_costs.h"

namespace nvfp4::cuda {

std::span<const KernelCost> kernel_costs() {
  // clang-format off
  static constexpr KernelCost kCosts[] = {
"""
TAIL = """\
  };
  // clang-format on
  static_assert(has_costs_of_all(kCosts), "a kernel of kSm90Kernels has no cost");
  return kCosts;
}

}  // namespace nvfp4::cuda
"""


def ceil_div(a, b):
    return -(-a // b)


def usable(split_k):
    """Clusters of several blocks do not span GPCs."""
    left = {1: 0, 2: 0, 4: MULTIPROCESSORS // 16, 8: MULTIPROCESSORS // 8}
    return MULTIPROCESSORS - left[split_k]


def terms(n, k, m, kernel):
    """What the five coefficients are multiplied by."""
    kind, tile_m, tile_n, stage_k, split_k, stream_k = kernel
    blocks = ceil_div(n, tile_n) * ceil_div(m, tile_m) * split_k
    if kind == "mma":
        steps, at_once = ceil_div(ceil_div(k, 64), 256 // tile_n) / 2, 2
    else:
        steps = ceil_div(k, 64) * 64 / stage_k / split_k
        at_once = 2 if tile_n <= 128 and tile_m <= 32 else 1
    rounds = ceil_div(blocks, usable(split_k))
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


if __name__ == "__main__":
    print(HEAD, end="")
    for (tile_m, tile_n, split), points in sorted(measurements(sys.argv[1:]).items()):
        matrix = np.array([t for t, _ in points], dtype=float)
        times = np.array([us for _, us in points])
        cost = bounded_least_squares(matrix / times[:, None], np.ones(len(times)))
        print(f"      {{{tile_m}, {tile_n}, {split}, "
              + ", ".join(f"{c:.4f}" for c in cost) + "},")
    print(TAIL, end="")
