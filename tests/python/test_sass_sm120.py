"""The machine code of the FP4 kernels for compute capability 12.x, read without a GPU: the instruction as often
as the tile asks for, nothing spilled, and few other instructions beside it. Skipped where the build has none."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from test_sass import TOOL, count, mainloop

SOURCE = Path(__file__).parents[2] / "src/backends/cuda/gemm/sm120/kernels.h"
OBJECTS = [p for p in os.environ.get("NVFP4_SM120_OBJECTS", "").split(":") if Path(p).name.startswith("gemm")]
INSTRUCTION = "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X "
REGISTERS = 65536  # of a multiprocessor
# Of a warp's loop for each OMMA, which takes a scheduler 16 cycles: those of tiles for many rows.
MOST_INSTRUCTIONS = {(128, 128): 14, (128, 256): 14, (256, 128): 10}

pytestmark = pytest.mark.skipif(not OBJECTS or not TOOL,
                                reason="no FP4 kernels" if not OBJECTS else "no cuobjdump")


def shapes():
    """m, n, parts of n and of K, and blocks of a multiprocessor of every kernel, from its list."""
    text = SOURCE.read_text()
    tiles = re.findall(r"\{MainloopKind::\w+, (\d+), (\d+), [^}]+\}", text)
    warps = re.search(r"kWarps\[\] = \{(.*?)\n\};", text, re.S)[1]
    warps = re.findall(r"\{1, (\d+), (\d+), \d+, (\d+)\}", warps)
    assert len(tiles) == len(warps) > 5
    return [tuple(map(int, t)) + tuple(map(int, w)) for t, w in zip(tiles, warps, strict=True)]


def dump(option, path):
    env = os.environ | {"PATH": f"{Path(TOOL).parent}:{os.environ['PATH']}"}
    return subprocess.run([TOOL, option, path], capture_output=True, text=True, check=True, env=env).stdout


def code(path):
    """{kernel of the list: its instructions, (address, text)}."""
    found, current = {}, None
    sass = dump("-sass", path)
    assert re.findall(r"^arch = (\S+)", sass, re.M) == ["sm_120f"]
    for line in sass.splitlines():
        if match := re.search(r"Function : .*OmmaConfigILi(\d+)ELb[01]E", line):
            current = found.setdefault(int(match[1]), [])
        elif current is not None and (match := re.match(
                r"\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\d+ )?([A-Z0-9][^;]*)", line)):
            current.append((int(match[1], 16), match[2]))
    return found


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_every_kernel_has_the_products_of_its_tile_and_few_instructions_beside(path):
    found = code(path)
    assert sorted(found) == list(range(len(shapes())))
    for index, (m, n, parts_n, *_) in enumerate(shapes()):
        products = n // 16 // parts_n * (max(8, m) // 8)
        assert sum(t.startswith(INSTRUCTION) for _, t in found[index]) == products, (m, n)
        counts = count(found[index])
        assert counts["OMMA"] == products and counts["LDSM"] > 0 and counts["LDGSTS"] > 0, (m, n)
        assert counts["LDL"] == counts["STL"] == 0, (m, n)
        loop = mainloop(found[index], "OMMA")
        assert count(loop)["OMMA"] == products, (m, n)
        if most := MOST_INSTRUCTIONS.get((m, n)):
            assert len(loop) <= most * products, (m, n, len(loop))


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_blocks_have_the_registers_that_they_need(path):
    usage = re.findall(r"Function \S*OmmaConfigILi(\d+)E\S*\s+REG:(\d+) STACK:(\d+)", dump("-res-usage", path))
    assert len(usage) == len(shapes())
    for index, registers, stack in (map(int, u) for u in usage):
        m, n, parts_n, parts, blocks = shapes()[index]
        threads = 32 * parts_n * parts
        # Handed out to warps by eights for each thread.
        assert -(-registers // 8) * 8 * threads * blocks <= REGISTERS, (m, n)
        assert stack == 0, (m, n)
