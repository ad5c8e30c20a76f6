"""Reads kernels of a compiled object with cuobjdump. The name of a kernel has the tile and the columns of a stage."""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


def tool():
    """cuobjdump of the toolkit, or of PyPI's nvidia-cuda-cuobjdump, which needs nvdisasm beside it."""
    beside = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    found = next(iter(beside.glob("site-packages/nvidia/*/bin/cuobjdump")), None)
    if found:
        for name in ("cuobjdump", "nvdisasm"):
            (found.parent / name).chmod(0o755)
    return str(found) if found else shutil.which("cuobjdump")


TOOL = tool()
TILE = re.compile(r"(?:Mma|Omma)ConfigI(?:LNS_5DTypeE\dE)?Li(\d+)ELi(\d+)ELi(\d+)ELb[01]E")


@dataclass
class Kernel:
    """A kernel of one architecture. Instructions are pairs of address and text."""

    m: int = 0
    n: int = 0
    k: int = 0
    threads: int = 0
    registers: int = 0
    stack: int = 0
    instructions: list = field(default_factory=list)

    @property
    def parts(self):
        """Parts of K of a block: each has a chunk of 64 columns in a stage."""
        return self.k // 64

    def products(self):
        """Multiplications of 16 rows of W by eight rows of x and a chunk of K, for each warp."""
        return self.n // 16 * (max(8, self.m) // 8) * self.parts // (self.threads // 32)

    def count(self):
        return count(self.instructions)


def dump(option, path):
    env = os.environ | {"PATH": f"{Path(TOOL).parent}:{os.environ['PATH']}"}
    return subprocess.run([TOOL, option, path], capture_output=True, text=True, check=True, env=env).stdout


@functools.cache
def kernels(path):
    """{(architecture, kernel's symbol): Kernel}"""
    found, architecture, current, threads = {}, None, None, False

    def kernel(symbol):
        tile = TILE.search(symbol)
        return tile and found.setdefault((architecture, symbol), Kernel(*map(int, tile.groups())))

    for line in dump("-sass", path).splitlines():
        if match := re.match(r"arch = (\S+)", line):
            architecture = match[1]
        elif match := re.search(r"Function : (\S+)", line):
            current = kernel(match[1])
        elif current and (match := re.match(r"\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\d+ )?([A-Z0-9][^;]*)", line)):
            current.instructions.append((int(match[1], 16), match[2]))
    for line in dump("-elf", path).splitlines():
        if match := re.match(r"arch = (\S+)", line):
            architecture = match[1]
        elif match := re.match(r"\.nv\.info\.(\S+)", line):
            current, threads = kernel(match[1]), False
        elif "EIATTR_MAX_THREADS" in line:
            threads = True
        elif threads and current and (match := re.search("Value:\\s+0x([0-9a-f]+)", line)):
            current.threads, threads = int(match[1], 16), False
    for line in dump("-res-usage", path).splitlines():
        if match := re.match(r"arch = (\S+)", line):
            architecture = match[1]
        elif match := re.search(r"Function (\S+):", line):
            current = kernel(match[1])
        elif current and (match := re.search(r"REG:(\d+) STACK:(\d+)", line)):
            current.registers, current.stack = map(int, match.groups())
    return found


def count(instructions):
    return Counter(re.match("[A-Z0-9]+", text)[0] for _, text in instructions)


def mainloop(instructions, product):
    """The first loop that multiplies."""
    for at, text in instructions:
        if text.startswith("BRA") and (to := re.search(r"0x([0-9a-f]+)", text)):
            loop = [(a, t) for a, t in instructions if int(to[1], 16) <= a <= at]
            if count(loop)[product]:
                return loop
    return []
