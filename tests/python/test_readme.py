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
        printed = run(command, tmp_path)
        if command.startswith("nvfp4 verify"):
            assert "not broken: 0 errors, 0 warnings" in printed, printed
    assert (tmp_path / "report.html").stat().st_size > 10_000
    pytest.importorskip("transformers", reason="transformers is not installed")
    shutil.copy(ROOT / "README.md", tmp_path)
    (evaluate,) = [line for line in block("sh", index=1).splitlines() if line.startswith("nvfp4-evaluate ")]
    printed = run(evaluate.replace("nvfp4-evaluate", f"{sys.executable} -m nvfp4.evaluate"), tmp_path)
    shown = [line for line in block("text").splitlines() if line]
    names = lambda lines: [re.match(r"\S+( \S+)*", line)[0] for line in lines[2:]]
    assert names([line for line in printed.splitlines() if line]) == names(shown)
    printed = run([sys.executable, "-c", block("python")], tmp_path)
    assert len(re.findall(r"\d+", printed)) == 16 + 8


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
        if command.startswith(("nvfp4 bench", "nvfp4 tune", "nvfp4 selftest")):  # a minute; a GPU
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
