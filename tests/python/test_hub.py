"""Models of the hub: downloaded shard by shard while they are quantized, uploaded; against a server on
this machine (hub_server.py)."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import nvfp4
import nvfp4.hub as nvfp4_hub
from hub_server import Hub

pytest.importorskip("huggingface_hub")

COMMAND = [os.environ["NVFP4_COMMAND"]] if "NVFP4_COMMAND" in os.environ else [
    sys.executable, "-m", "nvfp4._cli"]
SHARDS = [f"model-{i:05}-of-00004.safetensors" for i in range(1, 5)]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The model, and what it becomes where it is whole."""
    folder = tmp_path_factory.mktemp("local")
    nvfp4.sample(folder / "model", layers=4, scale=1 / 16, shards=4)
    assert sorted(f.name for f in (folder / "model").glob("*.safetensors")) == SHARDS
    (folder / "model" / "assets").mkdir()
    (folder / "model" / "assets" / "note.txt").write_text("carried over")
    nvfp4.quantize_checkpoint(folder / "model", folder / "out")
    return folder


@pytest.fixture
def hub(local):
    server = Hub("org/tiny", local / "model")
    yield server
    server.close()


def environment(hub, folder, **more):
    return {**os.environ, "HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "home"), "HF_TOKEN": "hf_secret",
            "HF_HUB_CACHE": str(folder / "home" / "hub"), "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1,localhost",
            "HF_HUB_DISABLE_XET": "1", "NVFP4_HUB_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}


def quantize(hub, folder, *options, name="org/tiny", **more):
    return subprocess.run([*COMMAND, "quantize", name, "out", "-q", *options], cwd=folder, text=True,
                          env=environment(hub, folder, **more), capture_output=True)


def bytes_of(folder):
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def same_as_local(folder, local):
    # The sum of the input is that of its commit, which is there before its shards are.
    found, wanted = (
        {name: re.sub(rb'(input\\?": ?\\?")[0-9a-f]{16}', rb"\1", data) for name, data in bytes_of(f / "out").items()}
        for f in (folder, local))
    assert b'base_model: "org/tiny"' in found.pop("README.md")
    wanted.pop("README.md")
    assert found == wanted
    return True


def shards_on_disk(folder):
    """Files that take room for more than a header, whole or not."""
    return {f for f in (folder / "out.download").rglob("*") if f.is_file() and f.suffix != ".json" and
            f.stat().st_blocks * 512 > 100_000}


def test_a_model_is_downloaded_while_it_is_quantized(hub, local, tmp_path):
    most = []

    def count(file):  # its own file is not there yet
        most.append(1 + len(shards_on_disk(tmp_path)))

    hub.on_get = count
    run = quantize(hub, tmp_path)
    assert run.returncode == 0, run.stderr
    assert same_as_local(tmp_path, local)
    assert [file for file, _ in hub.got] == SHARDS
    assert max(most) <= 2, most
    assert not (tmp_path / "out.download").exists()
    assert not list((tmp_path / "home").rglob("*.safetensors"))


def test_the_next_shard_is_fetched_while_there_is_room(tmp_path, capsys):
    class Model:
        root, got, fetched = tmp_path, [], threading.Semaphore(0)

        def fetch(self, shard):
            (self.root / shard).touch()
            self.got.append(shard)
            self.fetched.release()

    model = Model()
    supply = nvfp4_hub.Supply(model, ["a", "b", "c"])
    for line in ("order a", "order b", "order c", "need a"):
        supply.hear(line + "\n")
    model.fetched.acquire()
    model.fetched.acquire()
    with supply.changed:
        assert model.got == ["a", "b"] and supply.next() is None
    supply.hear("done a\n")
    model.fetched.acquire()
    with supply.changed:
        assert model.got == ["a", "b", "c"] and supply.next() is None
    assert capsys.readouterr().out == "have a\n"


def test_a_transfer_that_breaks_off_goes_on_where_it_was(tmp_path):
    # huggingface_hub writes 10 MB at a time.
    nvfp4.sample(tmp_path / "local" / "model", layers=1, scale=1 / 4, shards=2)
    nvfp4.quantize_checkpoint(tmp_path / "local" / "model", tmp_path / "local" / "out")
    server = Hub("org/tiny", tmp_path / "local" / "model")
    try:
        shard = sorted(f for f in server.files if f.endswith(".safetensors"))[0]
        server.cuts = {shard: 2}
        run = quantize(server, tmp_path)
        assert run.returncode == 0, run.stderr
        assert same_as_local(tmp_path, tmp_path / "local")
        starts = [first for file, first in server.got if file == shard]
        assert len(starts) == 3 and 0 == starts[0] < starts[1] < starts[2]
    finally:
        server.close()


def test_a_file_that_arrives_wrong_once_is_downloaded_again(hub, local, tmp_path):
    hub.spoiled = {SHARDS[2]: 1}
    run = quantize(hub, tmp_path)
    assert run.returncode == 0, run.stderr
    assert same_as_local(tmp_path, local)
    assert [first for file, first in hub.got if file == SHARDS[2]] == [0, 0]


def test_a_file_of_another_sum_is_refused_and_the_run_resumed(hub, local, tmp_path):
    hub.spoiled = {SHARDS[2]: 100}
    run = quantize(hub, tmp_path)
    assert run.returncode == 1
    assert SHARDS[2] in run.stderr and "SHA-256" in run.stderr, run.stderr
    assert not (tmp_path / "out" / SHARDS[2]).exists()
    assert not (tmp_path / "out" / "config.json").exists()
    assert (tmp_path / "out.download").exists()
    hub.spoiled, hub.got = {}, []
    run = quantize(hub, tmp_path, "--resume")
    assert run.returncode == 0, run.stderr
    assert same_as_local(tmp_path, local)
    assert SHARDS[0] not in [file for file, _ in hub.got]
    assert not (tmp_path / "out.download").exists()


def test_a_run_is_not_resumed_with_another_commit(hub, tmp_path):
    hub.spoiled = {SHARDS[2]: 100}
    assert quantize(hub, tmp_path).returncode == 1
    hub.spoiled, hub.commit = {}, "f" * 40
    run = quantize(hub, tmp_path, "--resume")
    assert run.returncode != 0 and "differ" in run.stderr, run.stderr


def test_a_command_that_is_killed_leaves_no_download_behind(hub, local, tmp_path):
    commands = []

    def kill(file):
        if file == SHARDS[2]:
            commands[0].kill()
            commands[0].wait()

    hub.on_get = kill
    commands.append(subprocess.Popen([*COMMAND, "quantize", "org/tiny", "out", "-q"], cwd=tmp_path,
                                     env=environment(hub, tmp_path), stderr=subprocess.PIPE))
    # stderr is the script's, too: its end says that both have ended.
    commands[0].stderr.read()
    commands[0].wait()
    assert SHARDS[3] not in [file for file, _ in hub.got]
    hub.on_get = lambda file: None
    run = quantize(hub, tmp_path, "--resume")
    assert run.returncode == 0, run.stderr
    assert same_as_local(tmp_path, local)


def test_the_token_is_not_sent_elsewhere(hub, tmp_path):
    run = quantize(hub, tmp_path)
    assert run.returncode == 0, run.stderr
    assert set(hub.tokens) == {None}


def test_a_model_that_is_quantized_is_downloaded_whole(local, tmp_path):
    server = Hub("org/tiny", local / "out")
    try:
        run = quantize(server, tmp_path, "--format", "compressed-tensors")
        assert run.returncode == 0, run.stderr
        assert nvfp4.inspect(tmp_path / "out")["complete"]
        assert not (tmp_path / "out.download").exists()
        assert list((tmp_path / "home").rglob("*.safetensors"))
    finally:
        server.close()


def test_a_model_that_is_not_there_is_an_error(hub, tmp_path):
    run = quantize(hub, tmp_path, name="org/other")
    assert run.returncode == 1
    assert "org/other" in run.stderr or "404" in run.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.download").exists()


def test_python_does_it_too(hub, local, tmp_path):
    code = "import nvfp4; r = nvfp4.quantize_checkpoint('org/tiny', 'out'); assert r['complete']"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(hub, tmp_path),
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert same_as_local(tmp_path, local)
    assert not list((tmp_path / "home").rglob("*.safetensors"))


def test_push_uploads_the_folder(hub, local, tmp_path):
    run = quantize(hub, tmp_path, "--push", "me/new", name=str(local / "model"))
    assert run.returncode == 0, run.stderr
    assert hub.uploaded == bytes_of(tmp_path / "out")
    assert [(r["organization"], r["name"], r.get("private") or r.get("visibility")) for r in hub.made] in (
        [("me", "new", True)], [("me", "new", "private")])


def test_push_is_refused_before_the_run(hub, local, tmp_path):
    for options, more in ((["--push", "name"], {}), (["--push", "me/new"], {"HF_TOKEN": "", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"})):
        run = quantize(hub, tmp_path, *options, name=str(local / "model"), **more)
        assert run.returncode != 0 and run.stderr, options
        assert not (tmp_path / "out").exists()
