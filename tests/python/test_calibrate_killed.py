"""nvfp4 calibrate, killed before any change to a name in its folders, goes on to the same bytes."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from calibrate_cases import SIZES, write_model, write_text_of_words

#: Runs the command once for each line of its input, in a process that kills itself before the change of that number.
SERVER = """
import os, signal, sys
import torch, transformers, nvfp4.calibrate
from nvfp4._cli import run_here

def killing(function, left):
    def instead(*args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return instead

for line in sys.stdin:
    change, *arguments = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        left = [int(change)]
        for name in ("replace", "rename", "mkdir", "rmdir", "unlink"):
            setattr(os, name, killing(getattr(os, name), left))
        os._exit(run_here("calibrate", arguments))
    print(os.waitpid(child, 0)[1], flush=True)
"""
NEVER = 10**9


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(change, arguments) -> whether it was killed."""
    said = tmp_path_factory.mktemp("server") / "stderr.txt"
    with said.open("w") as errors:
        server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=errors, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def run(change, arguments):
        print(change, *arguments, sep="\t", file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        assert status in (0, signal.SIGKILL), said.read_text()
        return status != 0

    yield run
    server.stdin.close()
    server.wait()


def files_of(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize("what", ["statistics", *(pytest.param(what, marks=pytest.mark.slow) for what in ("dense", "experts"))])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, run, what):
    model = write_model(tmp_path / "model", what == "experts")
    text = write_text_of_words(tmp_path / "text.txt")

    def arguments(folder):
        folder.mkdir(exist_ok=True)
        keep = ["--keep-gram"] if what == "statistics" else ["--quantize", str(folder / "quantized"), "--method", "gptq:1"]
        sizes = [word for name, n in SIZES.items() for word in (f"--{name}", str(n))]
        return [str(model), "--text", str(text), "--out", str(folder / "stats"), "--device", "cpu", *sizes, *keep]

    whole = tmp_path / "whole"
    assert not run(NEVER, arguments(whole))
    expected = files_of(whole)
    out, change = tmp_path / "out", 0
    while run(change, arguments(out)):
        if not (out / "quantized").exists() and what != "statistics":
            assert not (out / "stats").exists(), f"killed before change {change}: statistics of an unfinished run"
        assert not run(NEVER, [*arguments(out), "--resume"]), change
        assert files_of(out) == expected, f"killed before change {change}"
        assert {p.name for p in out.iterdir()} == {p.name for p in whole.iterdir()}, f"{change}: something is left"
        shutil.rmtree(out)
        change += 1
    assert files_of(out) == expected
    assert change > (8 if what == "statistics" else 20)
