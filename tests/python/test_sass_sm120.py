"""The machine code of the FP4 kernels for compute capability 12.x, read without a GPU: the instruction as often
as the tile asks for, nothing spilled, and few other instructions beside it. Skipped where the build has none."""

import os
from pathlib import Path

import pytest
from machine_code import TOOL, count, kernels, mainloop

OBJECTS = [p for p in os.environ.get("NVFP4_SM120_OBJECTS", "").split(":") if p]
INSTRUCTION = "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X "
REGISTERS = 65536  # of a multiprocessor
# Of a warp's loop for each OMMA, which takes a scheduler 16 cycles: those of tiles for many rows.
MOST_INSTRUCTIONS = {(128, 128): 14, (128, 256): 14, (256, 128): 10}

pytestmark = pytest.mark.skipif(not OBJECTS or not TOOL,
                                reason="no FP4 kernels" if not OBJECTS else "no cuobjdump")


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_every_kernel_has_few_other_instructions(path):
    found = kernels(path)
    assert {architecture for architecture, _ in found} == {"sm_120f"} and len(found) >= 8
    assert MOST_INSTRUCTIONS.keys() <= {(k.m, k.n) for k in found.values()}
    for key, kernel in found.items():
        products = kernel.products()
        assert sum(text.startswith(INSTRUCTION) for _, text in kernel.instructions) == products, key
        counts = kernel.count()
        assert counts["OMMA"] == products and counts["LDSM"] > 0 and counts["LDGSTS"] > 0, key
        assert counts["LDL"] == counts["STL"] == 0, key
        loop = mainloop(kernel.instructions, "OMMA")
        assert count(loop)["OMMA"] == products, key
        if most := MOST_INSTRUCTIONS.get((kernel.m, kernel.n)):
            assert len(loop) <= most * products, (key, len(loop))


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_a_block_has_the_registers_that_it_needs(path):
    for key, kernel in kernels(path).items():
        # Registers are allocated to warps by eights for each thread.
        assert 0 < -(-kernel.registers // 8) * 8 * kernel.threads <= REGISTERS, key
        assert kernel.stack == 0, key
