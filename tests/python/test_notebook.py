"""The cells of the notebook run, one after the other: with few steps of training, and as they are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples/first_model.ipynb"


@pytest.mark.parametrize("steps", [2, pytest.param(400, marks=pytest.mark.slow)])
def test_notebook_runs(steps, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "steps = 400" in program
    done = subprocess.run([sys.executable, "-c", program.replace("steps = 400", f"steps = {steps}")], cwd=tmp_path,
                          text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 errors, 0 warnings" in done.stdout and "model-nvfp4: If the object" in done.stdout
