"""README's commands, and each block of a page below a line `<!-- run -->`: commands, or a program in Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command import SCRIPT

ROOT = Path(__file__).parents[2]


def block(language, file):
    return re.search(rf"```{language}\n(.*?)```", (ROOT / file).read_text(encoding="utf-8"), re.DOTALL)[1]


def environment():
    given = os.environ.get("NVFP4_COMMAND") or shutil.which("nvfp4", path=Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{Path(given).parent}:{os.environ['PATH']}",
            "HF_HUB_OFFLINE": "1"}


def test_readme_commands_print_what_it_shows(tmp_path):
    def steady(line):  # without what differs between machines
        return re.sub(r"[\d.]+ (s|GB/s|MB at most|± [\d.]+)|cpu-\S+|\d+ threads?", "#", line.rstrip())

    def check(command, lines):
        printed = iter([steady(line) for line in run(by_script(command), tmp_path).splitlines()])
        for line in lines.splitlines():
            assert line == "..." or steady(line) in printed, (command, line)

    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = re.split(r"^\$ (.*)\n", block("text", "README.md"), flags=re.MULTILINE)[1:]
    assert [command.split()[1] for command in shown[::2]] == ["quantize", "verify", "convert", "evaluate"]
    for command, lines in zip(shown[:6:2], shown[1:6:2]):
        check(command, lines)
    run("nvfp4 compare examples/austen austen-nvfp4 --html report.html", tmp_path)
    pytest.importorskip("transformers", reason="transformers is not installed")
    check(*shown[6:])
    printed = run([sys.executable, "-c", block("python", "README.md")], tmp_path)
    assert re.match(r"Elizabeth[,.;]? ([a-z',.;]+\s+){12}", printed), printed


def by_script(text):
    """Returns commands whose calibrate and evaluate are those of the package. Training ends after one step."""
    text = re.sub(r"^python3 (.*) --steps \d+", rf"{sys.executable} {ROOT}/\1 --steps 1 --length 16", text, flags=re.MULTILINE)
    return re.sub(r"^nvfp4 (?=calibrate|evaluate)", " ".join(SCRIPT) + " ", text, flags=re.MULTILINE)


def run(command, folder):
    done = subprocess.run(command, shell=isinstance(command, str), cwd=folder, env=environment(),
                          text=True, capture_output=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def marked_blocks():
    for page in sorted((ROOT / "docs").glob("*.md")):
        found = re.findall(r"<!-- run -->\n```(\w+)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        for i, (language, text) in enumerate(found):
            calibrates = "nvfp4 calibrate" in text  # which imports PyTorch for each command
            yield pytest.param(language, text, id=f"{page.stem}-{i}", marks=[pytest.mark.slow] if calibrates else [])


@pytest.fixture
def folder(tmp_path, text):
    """Has the models and files that the pages name."""
    if "nvfp4 calibrate" in text:  # the model needs a tokenizer
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
    for command in by_script(text).splitlines():
        shutil.rmtree(folder / "out", ignore_errors=True)
        run(command, folder)


def test_pages_mark_their_blocks():
    assert {block.id for block in marked_blocks()} >= {"python-0", "commands-0", "recipes-0", "calibration-0"}
