"""test_transformers.py again with transformers 4, whose experts are one Linear each, from the folder
`transformers4` of the environment (tools/python_env.sh puts it there)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "transformers4"


@pytest.mark.slow
def test_everything_again():
    if not (FOLDER / "transformers").is_dir():
        pytest.skip("transformers 4 is not installed beside transformers 5")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
         Path(__file__).with_name("test_transformers.py")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(
            [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])}, capture_output=True, text=True, check=False)
    print(run.stdout[-4000:])
    assert run.returncode == 0, run.stderr[-2000:]
    assert "leaves weight_global_scale" not in run.stdout and "6 skipped" not in run.stdout
