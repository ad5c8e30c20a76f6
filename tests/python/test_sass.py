"""The machine code of the kernels for every GPU from sm_80 on, read without a GPU: products and copies as
many as the tile asks for, and next to nothing spilled. Skipped where the build has no CUDA."""

import os
from pathlib import Path

import pytest
from machine_code import TOOL, kernels, mainloop

OBJECTS = [p for p in os.environ.get("NVFP4_SM80_OBJECTS", "").split(":") if p]
STRIP_INSTRUCTIONS = {"bf16": 95, "f16": 128}  # of a warp's loop
LOCAL_BYTES = 128  # the epilogue of a tile of 128 x 128 keeps some sums there

pytestmark = pytest.mark.skipif(not OBJECTS or not TOOL,
                                reason="no CUDA build" if not OBJECTS else "no cuobjdump")


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_every_kernel_has_the_products_of_its_tile(path):
    found = kernels(path)
    assert len(found) >= 20
    for key, kernel in found.items():
        counts = kernel.count()
        # Kernels of many rows may load W to registers: they alternate between two sets.
        sets = (1, 2) if kernel.parts == 1 and kernel.m >= 64 else (1,)
        assert counts["HMMA"] in [4 * kernel.products() * s for s in sets], key
        assert counts["LDGSTS"] > 0 and counts["LDSM"] > 0, key


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_next_to_nothing_is_spilled(path):
    assert all(k.registers > 0 and k.stack <= LOCAL_BYTES for k in kernels(path).values())


@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: Path(p).name)
def test_few_rows_take_few_instructions(path):
    """Reading 16 x 64 weights at 4.8 TB/s leaves each scheduler of an H200 111 cycles, of which decoding
    takes some 92: see docs/notes/gemm-mma.md."""
    most = STRIP_INSTRUCTIONS["bf16" if "bf16" in path else "f16"]
    checked = 0
    for key, kernel in kernels(path).items():
        strips = kernel.products()  # of a warp: there is one group of eight rows
        if kernel.m <= 8 and strips >= 2:
            assert 0 < len(mainloop(kernel.instructions, "HMMA")) <= most * strips, key
            checked += 1
    assert checked >= 4
