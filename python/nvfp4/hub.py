"""Models of the Hugging Face Hub, shard by shard: what `nvfp4 quantize org/model OUT` and --push run.

The command carries this file and starts it with a Python that has huggingface_hub; it uses nothing
else of this package. `python -m nvfp4.hub` is the same:

    hub.py stage ORG/MODEL FOLDER   Makes the model's folder, whose shards are empty but for their
                                    headers, prints "staged PATH", and answers lines on stdin:
                                    "order NAME", "need NAME", "done NAME". Prints "whole" where
                                    that does not work: the model is quantized, or no safetensors.
    hub.py check                    Prints "ready NAME" if this user may upload.
    hub.py push ORG/MODEL FOLDER    Uploads the folder; a repository that is new is private.

A failure is a line "failed TEXT".
"""

import errno
import hashlib
import json
import os
import shutil
import signal
import sys
import threading
import time
import urllib.parse
import urllib.request

# A cache would be the copy on disk that there is no room for; the bar is the command's own.
os.environ["HF_XET_CHUNK_CACHE_SIZE_BYTES"] = "0"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

#: Shards on disk, those on their way included, beyond what the run itself asks for at once.
MOST_SHARDS = 2
ATTEMPTS = 5
MOST_HEADER_BYTES = 100_000_000  # as safetensors has it
PLAIN = {"BF16", "F16", "F32", "F64", "I64", "I32", "BOOL"}
#: Weights in another form: they are not carried over, so they are not fetched.
OTHER_WEIGHTS = (".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".gguf", ".msgpack", ".h5", ".onnx",
                 ".ot", ".tflite", ".onnx_data")


class Failure(Exception):
    """Messages to the user."""


def say(*words):
    print(*words, flush=True)


def shards_of(files, index):
    """The shards of a model, sorted, None if there are none."""
    if index is not None:
        names = sorted(set(index.get("weight_map", {}).values()))
    elif "model.safetensors" in files:
        names = ["model.safetensors"]
    else:
        names = sorted(n for n in files if n.endswith(".safetensors") and "/" not in n)
    for name in names:
        if name not in files or "/" in name:
            raise Failure(f"{name}: the index names it, and it is no file of the model")
    return names


class Model:
    """A model of the hub at one commit, and the folder it is staged in."""

    def __init__(self, name, folder):
        import huggingface_hub

        self.hub = huggingface_hub
        self.name = name
        self.folder = folder
        info = huggingface_hub.HfApi().model_info(name, files_metadata=True)
        self.commit = info.sha
        self.files = {f.rfilename: f for f in info.siblings}
        for file in self.files:
            parts = file.split("/")
            if ".." in parts or "" in parts or "\\" in file or not file.isprintable():
                raise Failure(f"{file!r}: no name of a file of a model")
        place = f"models--{name.replace('/', '--')}"
        self.root = os.path.join(folder, place, "snapshots", self.commit)
        self.arriving = os.path.join(folder, "arriving")
        os.makedirs(self.root, exist_ok=True)

    def download(self, file, force=False):
        """Downloads a file of the model into `arriving`. huggingface_hub resumes an interrupted download."""
        for attempt in range(ATTEMPTS):
            try:
                return self.hub.hf_hub_download(self.name, file, revision=self.commit,
                                                local_dir=self.arriving, force_download=force)
            except Exception as error:
                refused = getattr(getattr(error, "response", None), "status_code", 500) < 500
                full = getattr(error, "errno", None) == errno.ENOSPC
                if refused or full or attempt + 1 == ATTEMPTS:
                    raise
                time.sleep(attempt)
        return None

    def sha256(self, file):
        lfs = self.files[file].lfs
        return lfs.sha256 if lfs is not None else None

    def fetch(self, file):
        """Moves a file to its place in the model, after comparing its SHA-256 with that of the hub."""
        for attempt in range(2):
            path = self.download(file, force=attempt > 0)
            wanted = self.sha256(file)
            found = sha256_of(path) if wanted else None
            if found == wanted:
                place = os.path.join(self.root, file)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.replace(path, place)
                return
            os.remove(path)
        raise Failure(f"{self.name}: {file} arrived twice with the SHA-256 {found}, the hub's is {wanted}")

    def start_of(self, file, count):
        """The first `count` bytes of a file, or all of it."""
        url = self.hub.hf_hub_url(self.name, file, revision=self.commit)
        about = self.hub.get_hf_file_metadata(url)
        headers = {"Range": f"bytes=0-{count - 1}", "Accept-Encoding": "identity"}
        if urllib.parse.urlsplit(about.location).netloc == urllib.parse.urlsplit(url).netloc:
            headers.update(self.hub.utils.build_hf_headers())
        request = urllib.request.Request(about.location, headers=headers)
        for attempt in range(ATTEMPTS):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    start = answer.read(count)
                if len(start) == min(count, about.size):
                    return start, about.size
                raise Failure(f"{file}: the hub sent {len(start)} of {count} bytes")
            except (OSError, Failure, EOFError) as error:
                if attempt + 1 == ATTEMPTS:
                    raise Failure(f"{file}: its header could not be read: {error}") from None
                time.sleep(attempt)
        return None

    def header_of(self, file):
        """The bytes of a shard's header, and the size of the shard."""
        start, size = self.start_of(file, 1 << 20)
        length = int.from_bytes(start[:8], "little")
        if len(start) < 8 or length > min(MOST_HEADER_BYTES, size - 8):
            raise Failure(f"{file}: no safetensors file")
        if len(start) < 8 + length:
            start, size = self.start_of(file, 8 + length)
        return start[:8 + length], size

    def stage(self):
        """The model's folder, with sparse shards that have only a header. None: a complete copy is needed."""
        index = None
        if "model.safetensors.index.json" in self.files:
            self.fetch("model.safetensors.index.json")
            with open(os.path.join(self.root, "model.safetensors.index.json"), "rb") as file:
                index = json.load(file)
        shards = shards_of(self.files, index)
        if not shards:
            return None
        for shard in shards:
            header, size = self.header_of(shard)
            tensors = {k: v for k, v in json.loads(header[8:]).items() if k != "__metadata__"}
            if not all(t.get("dtype") in PLAIN for t in tensors.values()):
                return None
            self.put_empty(shard, header, size)
        for file in self.files:
            if not file.endswith(OTHER_WEIGHTS) and not file.startswith((".", "consolidated", "original/")):
                self.fetch(file)
        return shards

    def put_empty(self, shard, header, size):
        path = os.path.join(self.root, shard)
        if os.path.lexists(path):
            os.remove(path)
        with open(path, "wb") as file:
            file.write(header)
            file.truncate(size)
        os.utime(path, ns=(0, 0))  # a run that is resumed wants the time of before


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


class Supply:
    """Fetches shards in a thread: those that are needed, then, while there is room, the next ones. So
    the end of stdin is seen at once."""

    def __init__(self, model, shards):
        self.model = model
        self.shards = set(shards)
        self.order = []
        self.held = set()  # whole or on their way
        self.whole = set()
        self.needed = None
        self.changed = threading.Condition()
        threading.Thread(target=self.run, daemon=True).start()

    def next(self):
        if self.needed is not None and self.needed not in self.held:
            return self.needed
        if len(self.held) < MOST_SHARDS:
            return next((s for s in self.order if s not in self.held), None)
        return None

    def run(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.next() is not None)
                shard = self.next()
                self.held.add(shard)
            try:
                self.model.fetch(shard)
            except Exception as error:
                fail(error)
            with self.changed:
                self.whole.add(shard)
                self.answer_need()

    def answer_need(self):
        if self.needed in self.whole:
            say("have", self.needed)
            self.needed = None

    def hear(self, line):
        word, _, shard = line.rstrip("\n").partition(" ")
        if shard not in self.shards:
            raise Failure(f"{line!r}: no shard of the model")
        with self.changed:
            if word == "order":
                self.order.append(shard)
            elif word == "need":
                self.needed = shard
                self.answer_need()
            elif word == "done":
                os.truncate(os.path.join(self.model.root, shard), 0)
                self.held.discard(shard)
                self.order = [s for s in self.order if s != shard]
            self.changed.notify_all()


def fail(error):
    say("failed", one_line(error))
    os._exit(1)


def one_line(error):
    return " ".join(str(error).split()) or type(error).__name__


def stage(name, folder):
    model = Model(name, folder)
    shards = model.stage()
    if shards is None:
        shutil.rmtree(folder, ignore_errors=True)
        say("whole")
        return
    say("staged", model.root)
    supply = Supply(model, shards)
    for line in sys.stdin:
        supply.hear(line)


def check():
    import huggingface_hub

    say("ready", huggingface_hub.HfApi().whoami()["name"])


def push(name, folder):
    import huggingface_hub

    api = huggingface_hub.HfApi()
    # A repository that is there stays as visible as it is.
    if not api.repo_exists(name):
        api.create_repo(name, private=True, exist_ok=True)
    commit = api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload by nvfp4.cpp")
    say("pushed", commit.commit_url)


def main(arguments):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command hears it too, and closes stdin
    try:
        {"stage": stage, "check": check, "push": push}[arguments[0]](*arguments[1:])
    except ImportError:
        say("none")
    except Exception as error:
        fail(error)
    sys.stdout.flush()
    os._exit(0)  # a download may be under way


if __name__ == "__main__":
    main(sys.argv[1:])
