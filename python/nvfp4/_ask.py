"""Asks the installed transformers or diffusers whether it reads a checkpoint, in a process of its own: what is
registered there, and what a hostile configuration does there, stays there."""

import importlib
import json
import os
import subprocess
import sys

#: Loaders that can be asked. Each begins with the name of a package, and nvfp4.<package>.ask asks it.
ASKED = ("transformers", "transformers+nvfp4", "diffusers")
_SECONDS = 1800
_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from nvfp4 import _ask; _ask.main(*sys.argv[2:])"


def unknown(text, version=""):
    """Returns an answer that settles nothing."""
    return {"verdict": "unknown", "text": text, "version": version, "tensors": {}}


def answers(folder, loaders):
    """Returns the answers of those of the loaders that can be asked, as JSON, or "". `folder`: of a model, on this
    machine."""
    given = {}
    for package in ("transformers", "diffusers"):
        if mine := [loader for loader in ASKED if loader in loaders and loader.startswith(package)]:
            given |= _answers(folder, package, mine)
    return json.dumps(given) if given else ""


def _answers(folder, package, loaders):
    if not os.path.isdir(folder):
        return {loader: unknown(f"{package} reads model folders") for loader in loaders}
    # The working folder must not be searched for modules.
    path = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *filter(None, sys.path)]
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DEACTIVATE_ASYNC_LOAD": "1", "PYTHONSAFEPATH": "1"}
    try:
        asked = subprocess.run([sys.executable, "-c", _CODE, json.dumps(path), package, os.path.abspath(folder), *loaders],
                               env=quiet, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS)
        return json.loads(asked.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        reason = f"{package} had no answer after {_SECONDS} seconds"
    except (ValueError, IndexError):
        lines = asked.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {asked.returncode}"]
        reason = f"{package} could not be asked: {lines[-1]}"
    return {loader: unknown(reason) for loader in loaders}


def main(package, folder, *loaders):
    """Prints the answers of loaders of one package, as one line of JSON."""
    ask = importlib.import_module(f"nvfp4.{package}.ask").ask
    print(json.dumps({loader: ask(folder, loader) for loader in loaders}))
