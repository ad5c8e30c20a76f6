"""The selection of tensors in every architecture that the installed transformers builds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
TOOL = Path(__file__).parents[2] / "tools" / "architectures.py"


@pytest.mark.slow
def test_selection_fits_every_architecture(tmp_path):
    tests, table = os.environ.get("NVFP4_TESTS"), tmp_path / "architectures.tsv"
    if not tests:
        pytest.skip("NVFP4_TESTS does not name the program of the C++ tests")
    subprocess.run([sys.executable, TOOL, table, "--report", tmp_path / "report"], check=True)
    assert table.read_text().count("\n>") >= 600
    chosen = "Architectures.*:Excludes.ListsOfAllArchitecturesAreRight:LayerKinds.CoverTheLayers*"
    run = subprocess.run([tests, f"--gtest_filter={chosen}"], env={**os.environ, "NVFP4_ARCHITECTURES": str(table)},
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0 and "[  PASSED  ] 8 tests" in run.stdout, run.stdout[-8000:]
