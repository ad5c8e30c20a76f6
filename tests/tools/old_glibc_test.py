#!/usr/bin/env python3
"""Checks that tools/release.sh could link the command for glibc 2.28. Each symbol of a newer glibc must exist in 2.28
under an older version, or be defined in python/src/portable/newer_glibc.cc.

usage: tests/tools/old_glibc_test.py COMMAND
"""

import os
import re
import subprocess
import sys
from pathlib import Path

OLDEST = (2, 28)
MADE_WITH = "glibc 2.36"  # Debian 12's; newer headers name functions otherwise
BY_ZIG = {"stat", "fstat", "lstat", "fstatat"}  # 2.28 has them in an archive that zig has too
PORTABLE = Path(__file__).parents[2] / "python" / "src" / "portable" / "newer_glibc.cc"


def symbols(file, undefined):
    """Name and version of each symbol of glibc that a file takes, or that it has."""
    for line in subprocess.run(["objdump", "-T", file], capture_output=True, check=True, text=True).stdout.splitlines():
        match = re.search(r"GLIBC_(\d+)\.(\d+)[\d.]*\)? +(\w+)$", line)
        if match and ("*UND*" in line) == undefined:
            yield match[3], (int(match[1]), int(match[2]))


def main(command):
    here = os.confstr("CS_GNU_LIBC_VERSION")
    if here != MADE_WITH:
        return f"skipped: releases are made with {MADE_WITH}, here is {here}"
    shared = subprocess.run(["ldd", command], capture_output=True, check=True, text=True).stdout
    old = {name for file in re.findall(r"=> (\S+/lib[cm]\.so\.6)", shared)
           for name, version in symbols(file, undefined=False) if version <= OLDEST}
    made = set(re.findall(r"\b(\w+)(?: = 0;|\(pthread_cond_t)", PORTABLE.read_text(encoding="utf-8")))
    newer = {name for name, version in symbols(command, undefined=True) if version > OLDEST}
    assert newer, f"{command} takes nothing of a glibc newer than 2.28: objdump's output was not understood"
    missing = sorted(newer - old - made - BY_ZIG)
    if missing:
        sys.exit(f"{command} takes what glibc 2.28 lacks, so no release can be linked: {', '.join(missing)}")
    return f"{len(newer)} symbols are newer than glibc 2.28, each with an older one or made here"


if __name__ == "__main__":
    print(main(sys.argv[1]))
