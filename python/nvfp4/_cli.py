"""The `nvfp4` command: hands over to the program of the same name inside the package."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "nvfp4")
    os.execv(program, ["nvfp4", *sys.argv[1:]])


if __name__ == "__main__":
    main()
