"""The `nvfp4` command: hands over to the program of the same name inside the package."""

import json
import os
import subprocess
import sys

from ._hub import can_download, download_model


def missing_models(command):
    """Returns the names of models that a command would read and the Hugging Face cache lacks."""
    asked = subprocess.run(command, env={**os.environ, "NVFP4_LIST_MISSING": "1"}, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        return json.loads(asked.stdout)["missing"]
    except (ValueError, TypeError, KeyError):  # the command reads no model
        return []


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
    except KeyboardInterrupt:
        sys.exit(130)
    os.execv(program, ["nvfp4", *sys.argv[1:]])
