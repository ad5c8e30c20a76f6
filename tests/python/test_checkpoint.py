"""Whole checkpoints, and the installed command."""

import json
import math
import struct
import subprocess
import sys

import pytest

import nvfp4
from command import SCRIPT


def add_tensors(path, tensors):
    """To a safetensors file: name -> dtype, shape, bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    for name, (dtype, shape, added) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(added)]}
        body += added
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    nvfp4.sample(folder, layers=1, scale=1 / 32)
    return folder


def test_quantize_verify_compare_inspect(model, tmp_path):
    seen = []
    out = tmp_path / "out"
    report = nvfp4.quantize_checkpoint(model, out, progress=lambda *args: seen.append(args))
    assert seen and seen[-1][1] == seen[-1][2]
    assert report["tensors"]
    checked = nvfp4.verify(out, source=model)
    assert not [f for f in checked["findings"] if f["severity"] == "error"]
    assert checked["loaders"]["vllm"]["verdict"] == "reads"
    assert nvfp4.verify(out, loader="sglang")["loaders"]["sglang"]["verdict"] == "reads"
    difference = nvfp4.compare(model, out)
    errors = sorted(t["relative_error"] for t in difference["tensors"])
    assert errors[0] <= difference["median_relative_error"] <= errors[-1]
    assert difference["worst_relative_error"] == errors[-1]
    assert nvfp4.inspect(out)["scheme"]


def test_the_bytes_are_those_of_the_command(model, tmp_path):
    nvfp4.quantize_checkpoint(str(model), str(tmp_path / "a"), format="compressed-tensors",
                              scheme="w4a16")
    subprocess.run([*SCRIPT, "quantize", model, tmp_path / "b",
                    "--format", "compressed-tensors", "--scheme", "w4a16"],
                   check=True, capture_output=True)
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert files == sorted(p.name for p in (tmp_path / "b").iterdir())
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_compare_writes_the_page_of_the_command(model, tmp_path):
    out = tmp_path / "out"
    nvfp4.quantize_checkpoint(model, out)
    report = nvfp4.compare(model, out, html=tmp_path / "page.html")
    assert report == nvfp4.compare(model, out)
    subprocess.run([*SCRIPT, "compare", model, out, "-q", "--html",
                    tmp_path / "same.html"], check=True, capture_output=True)
    page = (tmp_path / "page.html").read_bytes()
    assert page.startswith(b"<!DOCTYPE html>")
    assert page == (tmp_path / "same.html").read_bytes()
    for inside in (out / "page.html", model / "page.html", tmp_path):
        with pytest.raises(nvfp4.InvalidValueError, match="html"):
            nvfp4.compare(model, out, html=inside)
    assert not (out / "page.html").exists()
    with pytest.raises(nvfp4.IoError, match="html"):
        nvfp4.compare(model, out, html=tmp_path / "nowhere" / "page.html")


def test_errors(model, tmp_path):
    with pytest.raises(OSError):
        nvfp4.quantize_checkpoint(tmp_path / "nothing", tmp_path / "out")
    with pytest.raises(nvfp4.InvalidValueError, match="scheme"):
        nvfp4.quantize_checkpoint(model, tmp_path / "out", scheme="w8a8")
    (tmp_path / "broken.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{\"a\":12}")
    with pytest.raises(nvfp4.FormatError):
        nvfp4.quantize_checkpoint(tmp_path / "broken.safetensors", tmp_path / "out")
    for name in ("ignore", "include", "fuse"):
        with pytest.raises(TypeError, match=f"{name} = .* must be a list of strings"):
            nvfp4.quantize_checkpoint(model, tmp_path / "out", **{name: "*.self_attn.*"})
    with pytest.raises(nvfp4.DeviceError if nvfp4.devices() else nvfp4.UnsupportedError):
        nvfp4.quantize_checkpoint(model, tmp_path / "out", device="cuda:99")


def test_messages_escape_what_a_terminal_would_obey(tmp_path):
    with pytest.raises(OSError, match=r"a\\xe2\\x80\\xaeb"):
        nvfp4.verify(tmp_path / "a\u202eb")


def test_progress_can_be_a_bar_of_tqdm(model, tmp_path, monkeypatch, capsys):
    auto = pytest.importorskip("tqdm.auto")
    bars = []

    class Bar(auto.tqdm):
        def __init__(self, *args, **given):
            bars.append(self)
            super().__init__(*args, **given)

    monkeypatch.setattr(auto, "tqdm", Bar)
    nvfp4.quantize_checkpoint(model, tmp_path / "out", progress=True)
    nvfp4.verify(tmp_path / "out", progress=True)
    assert [bar.desc for bar in bars] == ["quantize", "verify"]
    assert all(bar.n == bar.total > 0 for bar in bars)
    assert "quantize" in capsys.readouterr().err
    nvfp4.verify(tmp_path / "out", progress=False)
    assert len(bars) == 2


def test_an_exception_of_progress_comes_back(model, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nvfp4.quantize_checkpoint(model, tmp_path / "out", progress=stop)
    nvfp4.quantize_checkpoint(model, tmp_path / "out", resume=True)


#: Runs until Ctrl-C comes while a function is at work: it raises and leaves its output incomplete.
INTERRUPTED = """
import os, pathlib, shutil, signal, sys, threading
import nvfp4
model, out = map(pathlib.Path, sys.argv[1:])
nvfp4.set_threads(1)
for attempt in range(50):
    shutil.rmtree(out, ignore_errors=True)

    def interrupt():
        while not out.exists():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        nvfp4.quantize_checkpoint(model, out)
        thread.join()
    except KeyboardInterrupt:
        thread.join()
        if not (out / "config.json").exists():
            break
else:
    sys.exit("never interrupted")
nvfp4.quantize_checkpoint(model, out, resume=True)
assert (out / "config.json").exists()
"""


def test_ctrl_c_ends_a_function_without_progress(tmp_path):
    nvfp4.sample(tmp_path / "large", layers=24, scale=0.2)
    run = subprocess.run([sys.executable, "-c", INTERRUPTED, tmp_path / "large", tmp_path / "out"],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_convert_there_and_back_and_repair(model, tmp_path):
    assert "bf16" in nvfp4.conversion_targets()
    nvfp4.quantize_checkpoint(model, tmp_path / "a")
    report = nvfp4.convert(tmp_path / "a", tmp_path / "b", to="compressed-tensors")
    assert {t["action"] for t in report["tensors"]} == {"moved", "kept"}
    nvfp4.convert(tmp_path / "b", tmp_path / "c", to="modelopt", scheme="w4a4")
    difference = nvfp4.compare(tmp_path / "a", tmp_path / "c")
    assert difference["different"] == 0 and difference["identical"] > 0
    with pytest.raises(nvfp4.InvalidValueError, match="gptq"):
        nvfp4.convert(tmp_path / "a", tmp_path / "d", to="gptq")
    with pytest.raises(nvfp4.InvalidValueError, match="scheme"):
        nvfp4.convert(tmp_path / "a", tmp_path / "d", to="bf16", scheme="w8a8")

    # Beside 4-bit weights FP8 of blocks has no place in ModelOpt's form.
    add_tensors(tmp_path / "b" / "model.safetensors", {
        "model.layers.0.extra.weight": ("F8_E4M3", [256, 128], bytes(range(64)) * 512),
        "model.layers.0.extra.weight_scale_inv": ("F32", [2, 1], struct.pack("<2f", 0.5, 0.25))})
    with pytest.raises(nvfp4.UnsupportedError, match="extra.weight.*cannot hold.*--allow decode"):
        nvfp4.convert(tmp_path / "b", tmp_path / "d", to="modelopt")
    report = nvfp4.convert(tmp_path / "b", tmp_path / "d", to="modelopt", allow=["decode"])
    assert "dequantized" in {t["action"] for t in report["tensors"]}

    add_tensors(tmp_path / "b" / "model.safetensors", {
        "model.layers.1.extra.weight": ("F8_E4M3", [128, 128], bytes(range(64)) * 256),
        "model.layers.1.extra.weight_scale_inv": ("F32", [1, 1], struct.pack("<f", math.nan))})
    with pytest.raises(nvfp4.FormatError, match="scale-nan.*--allow broken-scales"):
        nvfp4.convert(tmp_path / "b", tmp_path / "e", to="bf16")
    assert "--allow broken-scales" in nvfp4.convert(tmp_path / "b", tmp_path / "e", to="bf16",
                                      allow=["broken-scales"])["warnings"][0]

    (tmp_path / "a" / "hf_quant_config.json").unlink()
    (tmp_path / "a" / "config.json").write_bytes((model / "config.json").read_bytes())
    assert any(f["code"] == "undeclared" for f in nvfp4.verify(tmp_path / "a")["findings"])
    repaired = nvfp4.repair(tmp_path / "a", tmp_path / "repaired")
    assert repaired["before"]["errors"] > 0 and repaired["after"]["errors"] == 0
    assert repaired["changes"][0]["code"] == "undeclared"
    for wrong in ({"scales": "tiled"}, {"nibbles": "middle"}):
        with pytest.raises(nvfp4.InvalidValueError, match=next(iter(wrong))):
            nvfp4.repair(tmp_path / "a", tmp_path / "other", **wrong)


@pytest.mark.parametrize("command", [SCRIPT, [sys.executable, "-m", "nvfp4"]], ids=["script", "module"])
def test_the_command(command):
    for words, start in ((["--version"], f"nvfp4 {nvfp4.__version__}\n"), (["calibrate", "--help"], "usage: nvfp4 calibrate")):
        run = subprocess.run([*command, *words], check=True, capture_output=True, text=True)
        assert run.stdout.startswith(start)
