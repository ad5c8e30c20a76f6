"""The `nvfp4` command: hands over to the program of the same name inside the package."""

import json
import os
import subprocess
import sys

from ._ask import ASKED, answers
from ._hub import can_download, download_model


def missing_models(command):
    """Returns the names of models that a command would read and the Hugging Face cache lacks."""
    asked = subprocess.run(command, env={**os.environ, "NVFP4_LIST_MISSING": "1"}, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        return json.loads(asked.stdout)["missing"]
    except (ValueError, TypeError, KeyError):  # the command reads no model
        return []


def answer_question(command):
    """Returns the answers of the loaders that `verify --for` and `--ask` name, for the program, or ""."""
    if command[1:2] != ["verify"] or not any(loader in word for word in command for loader in ASKED):
        return ""
    asked = subprocess.run(command, env={**os.environ, "NVFP4_PRINT_QUESTION": "1"}, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    loaders, _, path = os.fsdecode(asked.stdout).partition("\n")
    return "" if asked.returncode else answers(path, loaders.split())


def printable(error):
    """Returns the text of an error as one line without control characters, which a server may have sent."""
    return "".join(c if c.isprintable() else " " for c in f"{type(error).__name__}: {error}".strip())


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "nvfp4")
    try:
        for name in missing_models([program, *sys.argv[1:]]) if can_download() else ():
            try:
                download_model(name)
            except Exception as error:  # the program reports the missing model
                print(f"nvfp4: {name}: {printable(error)}", file=sys.stderr)
        if answer := answer_question([program, *sys.argv[1:]]):
            os.environ["NVFP4_LOADER_ANSWERS"] = answer
    except KeyboardInterrupt:
        sys.exit(130)
    os.execv(program, ["nvfp4", *sys.argv[1:]])
