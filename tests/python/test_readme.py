"""README's tour, and each block of a page below a line `<!-- run -->`: commands, or a program in Python."""

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
            assert "OK: 0 errors, 0 warnings" in printed, printed
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


def marked_blocks():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        found = re.findall(r"<!-- run -->\n```(\w+)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        for i, (language, text) in enumerate(found):
            calibrates = "nvfp4-calibrate" in text  # which imports PyTorch for each command
            yield pytest.param(language, text, id=f"{page.stem}-{i}", marks=[pytest.mark.slow] if calibrates else [])


@pytest.fixture
def folder(tmp_path, text):
    """Has the models and files that the pages name."""
    if "nvfp4-calibrate" in text:  # the model needs a tokenizer
        calibrate_cases = pytest.importorskip("calibrate_cases", reason="transformers is not installed")
        calibrate_cases.write_model(tmp_path / "path/to/model", experts=False)
        for name in ("TEXT", "OTHER_TEXT", "text.txt"):
            calibrate_cases.write_text_of_words(tmp_path / name, documents=20)
    else:
        run("nvfp4 sample path/to/model --layers 1 --scale 0.0625", tmp_path)
    run("nvfp4 quantize path/to/model path/to/broken", tmp_path)
    (tmp_path / "path/to/broken/hf_quant_config.json").unlink()
    (tmp_path / "path/to/broken/config.json").write_text("{}")
    (tmp_path / "MODEL").symlink_to("path/to/model")
    (tmp_path / "my.yaml").write_text(block("yaml", "docs/recipes.md"), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("language, text", list(marked_blocks()))
def test_marked_blocks_run(language, text, folder):
    if language == "python":
        pytest.importorskip("torch", reason="PyTorch is not installed")
        assert run([sys.executable, "-c", text], folder)
        return
    for command in re.sub(r"^nvfp4-(\w+)", rf"{sys.executable} -m nvfp4.\1", text, flags=re.MULTILINE).splitlines():
        shutil.rmtree(folder / "out", ignore_errors=True)
        run(command, folder)


def test_pages_mark_their_blocks():
    assert {block.id for block in marked_blocks()} >= {"README-0", "commands-0", "recipes-0", "calibration-0"}
