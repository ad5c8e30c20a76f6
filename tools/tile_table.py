#!/usr/bin/env python3
"""Makes the table of measured kernels from what a benchmark of all kernels printed.

usage: tile_table.py MEASURED > src/backends/cuda/gemm/sm90/measured_kernels.cc

MEASURED has a line "== NxK ..." for each shape, and below it for each number of rows of x a line
with "M=rows" and "NAME=microseconds" for each kernel, as this prints them:
nvfp4_cuda_gemm_bench --kernels tuned --rows 2,4,8,16,32,64,96,128,192,256,512,768,1024,2048,4096
"""

import re
import sys

SHAPE = re.compile(r"^== (\d+)x(\d+)")
ROWS = re.compile(r"\bM=(\d+)")
KERNEL = re.compile(r"\bsm90_[a-z]+_m(\d+)n(\d+)k\d+(?:_splitk(\d+))?(?:_dependents(\d+))?"
                    r"(?:_prefetch(\d+))?(?:_streamk(\d+))?=([\d.]+)")
USUAL = ("", "", "1", "0", "kAllStages", "0")

HEAD = """\
// As tools/tile_table.py writes it, from measurements on H200s: docs/benchmarks.md says which.
#include "backends/cuda/gemm/sm90/cost_model.h"

namespace nvfp4::cuda {

std::span<const MeasuredKernel> measured_kernels() {
  // clang-format off
  static constexpr MeasuredKernel kTiles[] = {
"""
TAIL = """\
  };
  // clang-format on
  return kTiles;
}

}  // namespace nvfp4::cuda
"""


def fewest(rows):
    """Rows of x up to which the smallest tiles do the same work."""
    return 2 if rows <= 2 else 4 if rows <= 4 else max(8, rows)


def best_kernels(lines):
    """{(n, k, rows): [kernel]} of the fastest without stream-K, and behind it the fastest with, if
    that is faster; a kernel is its six numbers as text."""
    best, shape = {}, None
    for line in lines:
        if match := SHAPE.match(line):
            shape = int(match[1]), int(match[2])
        elif (match := ROWS.search(line)) and shape:
            times = {tuple(field or usual for field, usual in zip(k, USUAL)): float(k[6])
                     for k in KERNEL.findall(line)}
            if times:
                alone = min((k for k in times if k[5] == "0"), key=times.get, default=None)
                fastest = min(times, key=times.get)
                found = [] if alone is None else [alone]
                best[(*shape, fewest(int(match[1])))] = found + [fastest] * (fastest[5] != "0")
    return best


def listed(kernel):
    """Without the fields at its end that are the usual ones."""
    fields = list(kernel)
    while len(fields) > 3 and fields[-1] == USUAL[len(fields) - 1]:
        fields.pop()
    return "{" + ", ".join(fields) + "}"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        kernels = best_kernels(file)
    print(HEAD, end="")
    for (n, k, m), found in sorted(kernels.items()):
        print(f"      {{{n}, {k}, {m}, {', '.join(map(listed, found))}}},")
    print(TAIL, end="")
