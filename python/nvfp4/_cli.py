"""The `nvfp4` command: hands over to the program of the same name inside the package."""

import importlib.util
import os
import sys


def main():
    # This Python's, if it has huggingface_hub, downloads models of the hub.
    if importlib.util.find_spec("huggingface_hub"):
        os.environ.setdefault("NVFP4_HUB_PYTHON", sys.executable)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "nvfp4")
    os.execv(program, ["nvfp4", *sys.argv[1:]])


if __name__ == "__main__":
    main()
