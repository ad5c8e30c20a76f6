"""Runs a file of engines/ with pytest in the environment of an engine, on the package that is tested here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nvfp4

REPOSITORY = Path(__file__).parents[2]


def site(at):
    """Fills the folder `at` with this package and its entry points alone: PYTHONPATH elsewhere."""
    import tomllib

    (at / "nvfp4").symlink_to(Path(nvfp4.__file__).parent)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    info = at / "nvfp4-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvfp4\nVersion: 0\n")
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project["entry-points"].items()))
    return at


def run(engine, at, cases, chosen=None):
    """Runs engines/`cases`; skips where build/venv-`engine` is not there. `at`: an empty folder."""
    python = Path(os.environ.get(f"NVFP4_{engine.upper()}_PYTHON",
                                 REPOSITORY / "build" / f"venv-{engine}" / "bin" / "python"))
    if not python.exists():
        pytest.skip(f"no {engine} here; tools/engines_env.sh {engine} makes build/venv-{engine}")
    version = "import sys; print(*sys.version_info[:2], sep='.')"
    said = subprocess.run([python, "-c", version], capture_output=True, text=True, check=True).stdout.strip()
    if said != "{}.{}".format(*sys.version_info[:2]):
        pytest.skip(f"{python} is Python {said}, which does not load this extension module")
    file = Path(__file__).parent / "engines" / cases
    ran = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(["-k", chosen] if chosen else []), file],
        env={**os.environ, "PYTHONPATH": str(site(at)), "OMP_NUM_THREADS": "1"}, cwd=file.parent,
        capture_output=True, text=True, timeout=1200)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-8000:]
