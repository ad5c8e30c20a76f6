#!/usr/bin/env python3
"""Makes the table of measured tiles from what a benchmark of all tiles printed.

usage: tile_table.py MEASURED > src/backends/cuda/gemm/measured_tiles.cc

MEASURED has a line "== NxK ..." for each shape, and below it for each number of rows of x a line
with "M=rows" and "[tokens,rows,splits,next,early,help]=microseconds" for each tile, as this prints them:
nvfp4_cuda_gemm_bench --tiles --rows 2,4,8,16,32,64,96,128,192,256,512,768,1024,2048,4096
"""

import re
import sys

SHAPE = re.compile(r"^== (\d+)x(\d+)")
ROWS = re.compile(r"\bM=(\d+)")
TILE = re.compile(r"\[(\d+),(\d+),(\d+),(\d+),(\d+),(\d+)\]=([\d.]+)")

HEAD = """\
// As tools/tile_table.py writes it, from measurements on H200s: docs/benchmarks.md says which.
#include "backends/cuda/gemm/choose_tile.h"

namespace nvfp4::cuda {

std::span<const MeasuredTile> measured_tiles() {
  // clang-format off
  static constexpr MeasuredTile kTiles[] = {
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


def best_tiles(lines):
    """{(n, k, rows): [(tokens, rows, splits, next, early)]} of the fastest tiles, and behind that
    the fastest with help, if it is faster."""
    best, shape = {}, None
    for line in lines:
        if match := SHAPE.match(line):
            shape = int(match[1]), int(match[2])
        elif (match := ROWS.search(line)) and shape:
            times = {tuple(map(int, t[:6])): float(t[6]) for t in TILE.findall(line)}
            if times:
                alone = min((t for t in times if t[5] == 0), key=times.get, default=None)
                fastest = min(times, key=times.get)
                found = [] if alone is None else [alone[:5]]
                best[(*shape, fewest(int(match[1])))] = found + [fastest] * (fastest[5] > 0)
    return best


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        tiles = best_tiles(file)
    print(HEAD, end="")
    for (n, k, m), found in sorted(tiles.items()):
        listed = ", ".join(f"{{{', '.join(map(str, tile))}}}" for tile in found)
        print(f"      {{{n}, {k}, {m}, {listed}}},")
    print(TAIL, end="")
