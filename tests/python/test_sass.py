"""The machine code of the kernels for every GPU from sm_80 on, read without a GPU: products and copies as
many as the tile asks for, and next to nothing spilled. Skipped where the build has no CUDA."""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/backends/cuda/gemm/sm80/kernels.h"
OBJECTS = [p for p in os.environ.get("NVFP4_SM80_OBJECTS", "").split(":") if p]
STRIP_INSTRUCTIONS = {"bf16": 95, "f16": 128}  # of a warp's loop
LOCAL_BYTES = 128  # the epilogue of a tile of 128 x 128 keeps some sums there


def tool():
    """cuobjdump of the toolkit, or of PyPI's nvidia-cuda-cuobjdump, which needs nvdisasm beside it."""
    beside = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    found = next(iter(beside.glob("site-packages/nvidia/*/bin/cuobjdump")), None)
    if found:
        for name in ("cuobjdump", "nvdisasm"):
            (found.parent / name).chmod(0o755)
    return str(found) if found else shutil.which("cuobjdump")


TOOL = tool()
pytestmark = pytest.mark.skipif(not OBJECTS or not TOOL,
                                reason="no CUDA build" if not OBJECTS else "no cuobjdump")


def shapes():
    """(m, n), (parts of m, of n, of K), stages and blocks of every kernel, from its list."""
    text = SOURCE.read_text()
    tiles = re.findall(r"\{MainloopKind::\w+, (\d+), (\d+), [^}]+\}", text)
    warps = re.search(r"kWarps\[\] = \{(.*?)\n\};", text, re.S)[1]
    warps = re.findall(r"\{(\d+), (\d+), (\d+), (\d+), (\d+)\}", warps)
    assert len(tiles) == len(warps) > 10
    return [tuple(map(int, t)) + tuple(map(int, w)) for t, w in zip(tiles, warps, strict=True)]


@functools.cache
def code(path):
    """{(architecture, kernel of the list): its instructions, (address, text)}."""
    env = os.environ | {"PATH": f"{Path(TOOL).parent}:{os.environ['PATH']}"}
    sass = subprocess.run([TOOL, "-sass", path], capture_output=True, text=True, check=True, env=env)
    found, current, architecture = {}, None, None
    for line in sass.stdout.splitlines():
        if match := re.search(r"^arch = (\S+)", line):
            architecture = match[1]
        elif match := re.search(r"Function : .*MmaConfigILNS_5DTypeE\dELi(\d+)ELb[01]E", line):
            current = found.setdefault((architecture, int(match[1])), [])
        elif "Function :" in line:
            current = None
        elif current is not None and (match := re.match(
                r"\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\d+ )?([A-Z0-9][^;]*)", line)):
            current.append((int(match[1], 16), match[2]))
    return found


def count(instructions):
    return Counter(re.match("[A-Z0-9]+", text)[0] for _, text in instructions)


def mainloop(instructions, product="HMMA"):
    """The first loop that multiplies."""
    for at, text in instructions:
        if text.startswith("BRA") and (to := re.search(r"0x([0-9a-f]+)", text)):
            loop = [(a, t) for a, t in instructions if int(to[1], 16) <= a <= at]
            if count(loop)[product]:
                return loop
    return []


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_every_kernel_has_the_products_of_its_tile(path):
    found, listed = code(path), shapes()
    swiglu = "swiglu" in path
    architectures = {a for a, _ in found}
    assert architectures
    for architecture in architectures:
        for index, (m, n, parts_m, parts_n, parts, _, blocks) in enumerate(listed):
            if swiglu and n < 32:
                continue
            counts = count(found[architecture, index])
            # Those that bring W themselves (is_direct) take turns with two sets of registers.
            direct = parts == 1 and n // 16 // parts_n == 2 and m // parts_m >= 64 and blocks == 1
            products = 4 * (n // 16 // parts_n) * (max(8, m) // 8 // parts_m) * (2 if direct else 1)
            assert counts["HMMA"] == products, (architecture, m, n)
            assert counts["LDGSTS"] > 0 and counts["LDSM"] > 0, (architecture, m, n)


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_next_to_nothing_is_spilled(path):
    usage = subprocess.run([TOOL, "-res-usage", path], capture_output=True, text=True, check=True)
    stacks = re.findall(r"Function \S*MmaConfig\S*\s+REG:\d+ STACK:(\d+)", usage.stdout)
    assert len(stacks) >= 10
    assert max(map(int, stacks)) <= LOCAL_BYTES


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_few_rows_take_few_instructions_for_a_strip_of_weights(path):
    """Reading 16 x 64 weights at 4.8 TB/s leaves each scheduler of an H200 111 cycles, of which decoding
    takes some 92: see docs/notes/gemm-mma.md."""
    most = STRIP_INSTRUCTIONS["bf16" if "bf16" in path else "f16"]
    for (architecture, index), instructions in code(path).items():
        m, n, _, parts_n, *_ = shapes()[index]
        strips = n // 16 // parts_n
        if m <= 8 and strips >= 2:
            assert 0 < len(mainloop(instructions)) <= most * strips, (architecture, m, n)
