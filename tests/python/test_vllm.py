"""vLLM on our kernels: engines/vllm_cases.py, in build/venv-vllm, where vLLM's package for CPUs is.

tools/engines_env.sh makes that environment; another: NVFP4_VLLM_PYTHON=/path/to/python.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="Python is older than 3.11")
import nvfp4

REPOSITORY = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("NVFP4_VLLM_PYTHON", REPOSITORY / "build" / "venv-vllm" / "bin" / "python"))
GROUPS = {
    "layers": "linear_layers or experts_of or cut or missing or stays",
    "chosen": "chosen or another_kind",
    "dense": "serves_a_dense",
    "experts": "serves_experts",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with this package and its entry points alone: PYTHONPATH for another environment."""
    at = tmp_path_factory.mktemp("site")
    (at / "nvfp4").symlink_to(Path(nvfp4.__file__).parent)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    info = at / "nvfp4-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvfp4\nVersion: 0\n")
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project["entry-points"].items()))
    return at


@pytest.mark.parametrize("group", GROUPS)
def test_in_vllm(site, group):
    if not PYTHON.exists():
        pytest.skip("vLLM is not installed; tools/engines_env.sh makes build/venv-vllm")
    said = subprocess.run([PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True,
                          text=True, check=True).stdout.split()
    if list(map(int, said)) != list(sys.version_info[:2]):
        pytest.skip(f"{PYTHON} is of Python {'.'.join(said)}, which does not load this extension module")
    cases = Path(__file__).parent / "engines" / "vllm_cases.py"
    ran = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", GROUPS[group], cases],
        env={**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}, cwd=cases.parent,
        capture_output=True, text=True, timeout=1200)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-8000:]
