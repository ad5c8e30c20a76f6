"""Tests again with other releases of transformers, which are installed below build/ when a test needs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: release -> (what it needs in other versions than build/venv has, a file of tests, the tests, types that it lacks)
RELEASES = {
    # The experts are one Linear each.
    "4.57.6": (["tokenizers==0.22.2", "huggingface-hub==0.36.2"], "test_transformers.py", "", ""),
    "5.17.0": (["huggingface-hub==1.33.0", "httpx==0.28.1", "httpcore==1.0.9"], "test_loader_verdicts.py", "sixty",
               "apertus1p5_text beam dory flint kolibri1 lara_mini"),
    "5.23.0": ([], "test_loader_verdicts.py", "sixty", "apertus1p5_text dory lara_mini"),
}


def installed(release):
    """Returns the folder of a release. It is complete if it has the list of its packages."""
    folder = HERE.parents[1] / "build" / f"transformers-{release}"
    wanted = [f"transformers=={release}", *RELEASES[release][0]]
    stamp = folder / "installed.txt"
    if not stamp.exists() or stamp.read_text().split() != wanted:
        run = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", folder,
                              *wanted], capture_output=True, text=True, check=False)
        if run.returncode:
            pytest.skip(f"transformers {release} cannot be installed: {run.stderr.strip()[-200:]}")
        stamp.write_text("\n".join(wanted))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_everything_again(release):
    _, file, tests, lacks = RELEASES[release]
    path = os.pathsep.join([str(installed(release)), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-k", tests, HERE / file],
                         env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    print(run.stdout[-8000:])
    assert run.returncode == 0, run.stderr[-2000:]
    assert sorted(re.findall(r"SKIPPED .* unknown type: (\w+)", run.stdout)) == lacks.split()
    assert "leaves weight_global_scale" not in run.stdout
