"""Models of the Hugging Face Hub by their names: the command of the package and the functions download
what the cache lacks, and no code of the working folder runs."""

import inspect
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import nvfp4
from command import SCRIPT
from nvfp4 import _core

COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: In the place of huggingface_hub: puts the model of LOCAL into the cache.
STUB = f'''
import os, shutil

def snapshot_download(model, revision=None, ignore_patterns=()):
    with open(os.environ["LOG"], "a") as log:
        print(model, revision, file=log)
    if model == "org/gated":
        raise OSError("403: accept\\n\\x1b[2Jthe licence")
    folder = os.path.join(os.environ["HF_HUB_CACHE"], "models--" + model.replace("/", "--"))
    shutil.copytree(os.environ["LOCAL"], os.path.join(folder, "snapshots", "{COMMIT}"))
    os.makedirs(os.path.join(folder, "refs"))
    with open(os.path.join(folder, "refs", revision or "main"), "w") as ref:
        ref.write("{COMMIT}")
'''


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    nvfp4.sample(folder / "model", layers=1, scale=1 / 64)
    nvfp4.quantize_checkpoint(folder / "model", folder / "out")
    return folder


@pytest.fixture
def script(local, tmp_path):
    """Runs the command of the package in tmp_path / "work". The log names what was downloaded."""
    for name in ("stub", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "stub" / "huggingface_hub.py").write_text(STUB)
    (tmp_path / "stub" / "torch.py").write_text("raise ModuleNotFoundError(name='torch')\n")
    path = os.pathsep.join([str(tmp_path / "stub"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_CACHE": str(tmp_path / "cache"),
                   "LOCAL": str(local / "model"), "LOG": str(tmp_path / "log")}
    environment.pop("HF_HUB_OFFLINE", None)  # other tests set it

    def run(*words):
        return subprocess.run([*SCRIPT, *words], cwd=tmp_path / "work", env=environment,
                              capture_output=True, text=True)

    run.log = lambda: (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
    run.work, run.stub, run.environment = tmp_path / "work", tmp_path / "stub", environment
    return run


@pytest.mark.parametrize("words", [
    ["quantize", "org/a", "o"], ["convert", "org/a", "o", "--to", "bf16"], ["inspect", "org/a"],
    ["verify", "org/a"], ["verify", "OUT", "--source", "org/a"], ["compare", "org/a", "OUT"],
    ["compare", "OUT", "OUT", "--html", "p.html", "--against", "org/a"],
    ["repair", "OUT", "o", "--source=org/a"]], ids=" ".join)
def test_every_command_downloads(script, local, words):
    run = script(*(str(local / "out") if word == "OUT" else word for word in words))
    assert run.returncode in (0, 3), run.stderr  # 3: verify finds a model that is not quantized
    assert script.log() == "org/a None\n"


def test_each_missing_model_is_downloaded_once(script):
    for _ in range(2):
        run = script("compare", "org/a", "org/b@v1")
        assert run.returncode == 0, run.stderr
    assert script.log() == "org/a None\norg/b v1\n"


def test_no_download_without_a_run(script):
    for words in (["quantize", "org/a", "o", "--dry-run"], ["quantize", "org/a", "o", "--no-such-option"],
                  ["convert", "org/a", "o"], ["help", "quantize"], ["quantize", "org/a", "s3://b/o"]):
        script(*words)
    assert script.log() == ""


def test_offline_nothing_is_downloaded(script):
    script.environment["HF_HUB_OFFLINE"] = "1"
    run = script("inspect", "org/a")
    assert run.returncode == 1 and "HF_HUB_OFFLINE is set" in run.stderr, run.stderr
    assert script.log() == ""


def test_a_failed_download_says_why(script):
    run = script("quantize", "org/gated", "o", "--json")
    assert run.returncode == 1
    assert "accept  [2Jthe licence" in run.stderr and "NV0103" in run.stderr
    assert '"NV0103"' in run.stdout


def test_code_of_the_working_folder_does_not_run(script):
    for module in ("argparse", "json", "hashlib", "huggingface_hub", "numpy", "runpy", "shutil", "subprocess", "torch"):
        (script.work / f"{module}.py").write_text("open('PWNED', 'w')\n")
    for name in ("org/a", "org/gated"):
        script("quantize", name, "o")
    for command in ("calibrate", "evaluate"):
        assert f"error: {command} needs the Python package torch [NV0599]\nhint: pip" in script(command, "m").stderr
    assert (script.work / "o" / "config.json").exists()
    assert not (script.work / "PWNED").exists()


@pytest.mark.parametrize("words, says", [
    (["calibrate", "my model", "--out", "o"], "to continue: nvfp4 calibrate 'my model' --out o --resume"),
    (["calibrate", "--merge", "a"], "nothing was written; to start again: nvfp4 calibrate --merge a"),
    (["evaluate", "m", "--text", "t"], "nothing was written; to start again: nvfp4 evaluate m --text t")])
def test_interrupted_commands_say_how_to_go_on(script, words, says):
    (script.stub / "torch.py").write_text("raise KeyboardInterrupt")
    run = script(*words)
    assert (run.returncode, run.stderr) == (-signal.SIGINT, f"\nnvfp4: interrupted; {says}\n")


def test_scripts_take_the_place_of_python_m():
    root = Path(__file__).parents[2]
    scripts = dict(re.findall(r'^(nvfp4[a-z-]*) = "([a-z0-9_.]+:main)"', (root / "pyproject.toml").read_text(), re.M))
    assert list(scripts) == ["nvfp4"]
    for script in scripts.values():
        assert (root / "python" / (script.removesuffix(":main").replace(".", "/") + ".py")).exists(), script
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    texts = [*(page.read_text() for page in pages), *(o["text"] for c in json.loads(_core.commands()) for o in c["options"])]
    assert not [text for text in texts if re.search(r"-m\s+nvfp4\.", text)]


def test_functions_download_what_is_missing(local, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.chdir(tmp_path)
    snapshot = tmp_path / "cache" / "models--org--a" / "snapshots" / COMMIT
    got = []

    def download(name):
        got.append(name)
        shutil.copytree(local / "model", snapshot)

    monkeypatch.setattr("nvfp4._checkpoint.download_model", download)
    name = f"org/a@{COMMIT}"
    out = str(local / "out")
    with pytest.raises(nvfp4.IoError, match="hf download org/a --revision") as error:
        nvfp4.quantize_checkpoint(name, "o", dry_run=True)
    assert error.value.code == "NV0103" and got == []
    for call in (lambda: nvfp4.quantize_checkpoint(Path(name), "o"), lambda: nvfp4.inspect(name),
                 lambda: nvfp4.convert(name, "c", to="bf16"), lambda: nvfp4.verify(out, source=name),
                 lambda: nvfp4.compare(name, out), lambda: nvfp4.repair(out, "r", source=name)):
        call()
        assert got.pop() == name and got == []
        shutil.rmtree(snapshot)
    no = OSError("no network")
    monkeypatch.setattr("nvfp4._checkpoint.download_model", lambda name: (_ for _ in ()).throw(no))
    with pytest.raises(nvfp4.IoError, match="hf download") as error:
        nvfp4.inspect(name)
    assert error.value.code == "NV0103" and error.value.__cause__ is no
    monkeypatch.setattr("nvfp4._checkpoint.can_download", lambda: False)
    with pytest.raises(nvfp4.IoError, match="hf download") as error:
        nvfp4.inspect(name)
    assert error.value.__cause__ is None


def test_huggingface_hub_takes_what_we_give():
    hub = pytest.importorskip("huggingface_hub")
    inspect.signature(hub.snapshot_download).bind("org/a", revision=None, ignore_patterns=["*.bin"])
