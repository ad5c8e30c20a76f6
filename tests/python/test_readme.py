"""Each command and program of README and docs/commands.md."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def block(language, file="README.md", index=0):
    text = (ROOT / file).read_text(encoding="utf-8")
    text = text[text.index("## A tour"):] if file == "README.md" else text
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[index]


def environment():
    given = os.environ.get("NVFP4_COMMAND") or shutil.which("nvfp4", path=Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{Path(given).parent}:{os.environ['PATH']}",
            "HF_HUB_OFFLINE": "1"}


def test_the_tour(tmp_path):
    commands = [line for line in block("sh").splitlines() if line.startswith("nvfp4 ")]
    assert [c.split()[1] for c in commands] == ["sample", "quantize", "verify", "compare", "convert",
                                                "convert"]
    for command in commands:
        run = subprocess.run(command, shell=True, cwd=tmp_path, env=environment(), text=True,
                             capture_output=True, check=False)
        assert run.returncode == 0, (command, run.stderr)
        if command.startswith("nvfp4 verify"):
            assert "not broken: 0 errors, 0 warnings" in run.stdout, run.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    run = subprocess.run([sys.executable, "-c", block("python")], cwd=tmp_path, env=environment(),
                         text=True, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "MISSING" not in run.stderr and "UNEXPECTED" not in run.stderr, run.stderr
    largest = float(re.search(r"tensor\(([0-9.e+-]+)", run.stdout).group(1))
    assert 0 < largest < 3  # logits go up to 3.5; those of another model are further apart


def run(command, folder):
    done = subprocess.run(command, shell=isinstance(command, str), cwd=folder, env=environment(),
                          text=True, capture_output=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def test_the_commands(tmp_path):
    commands = [line for line in block("sh", "docs/commands.md").splitlines() if line]
    assert len(commands) >= 14 and all(c.startswith("nvfp4 ") for c in commands)
    run("nvfp4 sample path/to/model --layers 1 --scale 0.0625", tmp_path)
    for command in commands:
        if command.startswith(("nvfp4 bench", "nvfp4 tune")):  # a minute; a GPU
            continue
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        if "path/to/broken" in command:
            shutil.copytree(tmp_path / "path/to/model-nvfp4", tmp_path / "path/to/broken")
            (tmp_path / "path/to/broken/hf_quant_config.json").unlink()
            (tmp_path / "path/to/broken/config.json").write_text("{}")
        assert run(command, tmp_path) or "-q" in command, command


def test_the_python_of_it(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    run("nvfp4 sample path/to/model --layers 1 --scale 0.0625", tmp_path)
    printed = run([sys.executable, "-c", block("python", index=1)], tmp_path)
    assert printed.startswith("[") and "'severity': 'error'" not in printed
