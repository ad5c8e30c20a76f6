#!/usr/bin/env python3
"""Checks that includes only point up the list of layers, which CMake's one include root cannot.

usage: check_includes.py [ROOT]    exit code 1 and one line for each wrong include
"""

import re
import sys
from pathlib import Path

# From the top, which includes nothing of ours, to the bottom, which nothing includes.
# The folders behind a "*" are peers: they do not include each other.
LAYERS = [
    "include/nvfp4",
    "src/platform",  # what differs between operating systems; a folder for Linux and one for Windows
    "src/core",
    "src/quantizers",
    "src/backends",  # files directly in it: what every backend provides
    "src/backends/*",
    "src/backends/registry",
    "src/ops",
    "src/layers",
    "include/nvfp4/checkpoint",
    # The way of a tensor: files, their formats, the model, what becomes of it, how, and what of it.
    "src/checkpoint/base",
    "src/checkpoint/io",
    "src/checkpoint/match",
    "src/checkpoint/safetensors",
    "src/checkpoint/hub",
    "src/checkpoint/families",
    "src/checkpoint/engines",
    "src/checkpoint/gguf",
    "src/checkpoint/formats",
    "src/checkpoint/source",
    "src/checkpoint/compare",
    "src/checkpoint/verify",
    "src/checkpoint/statistics",
    "src/checkpoint/recipe",
    "src/checkpoint/work",
    "src/checkpoint/plan",
    "src/checkpoint/encode",
    "src/checkpoint/output",
    "src/checkpoint/write",
    "src/checkpoint/choose",
    "src/checkpoint/run",
    "src/checkpoint/repair",
    "src/checkpoint/load",
    "src/checkpoint/sample",
    "src/report",
    "src/selftest",
    "src/commands",
    "cli",
    "python/src",
]
ROOTS = ["include", "src", "cli", "python/src", "."]
LIBRARIES = ("hwy/", "fmt/", "nlohmann/", "CLI/", "nanobind/")
SOURCES = {".h", ".cc", ".cuh", ".cu"}
# What nvfp4::nvfp4 does without: only the layers from include/nvfp4/checkpoint on may include these.
OF_CHECKPOINTS = ("nlohmann/", "pcre2", "re2/", "yaml-cpp/", "xxhash")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def layer_of(path: Path):
    """(rank, peer folder or None) of a path relative to the root; None outside the list."""
    parts = path.parts
    if parts[:1] == ("cli",):
        return LAYERS.index("cli"), None
    if parts[:1] == ("src",) and len(parts) == 2:
        return LAYERS.index("src/core"), None
    folder = "/".join(parts[:2])
    if folder == "src/checkpoint" or parts[:3] == ("include", "nvfp4", "checkpoint"):
        folder = "/".join(parts[:3])
    if folder == "src/backends":
        if len(parts) > 3:
            return LAYERS.index("src/backends/*"), parts[2]
        if path.stem == "registry":
            return LAYERS.index("src/backends/registry"), None
    return (LAYERS.index(folder), None) if folder in LAYERS else None


def resolve(root: Path, file: Path, name: str):
    """The file of ours that `name` stands for, relative to the root, or None."""
    for folder in [file.parent] + [root / r for r in ROOTS]:
        found = (folder / name).resolve()
        if found.is_file() and found.is_relative_to(root):
            return found.relative_to(root)
    return None


def check_include(root: Path, file: Path, quoted, angled):
    """Returns the fault of an include, or None."""
    source = file.relative_to(root)
    rank, peer = layer_of(source)
    target = resolve(root, file, quoted or angled)
    if target is None:
        if rank < LAYERS.index("include/nvfp4/checkpoint") and (quoted or angled).startswith(OF_CHECKPOINTS):
            return f"the library of kernels may not include {quoted or angled}"
        if quoted and not quoted.startswith(LIBRARIES):
            return f'"{quoted}" is not a file of this project'
        if source.parts[0] == "include" and not re.fullmatch(r"[a-z_0-9]+", angled or ""):
            return f"a public header may include only nvfp4/ and the standard library, not {quoted or angled}"
        return None
    if source.parts[0] == "include" and target.parts[0] != "include":
        return f"a public header may not include {target}"
    if layer_of(target) is None:
        return f"{target} is in no layer"
    target_rank, target_peer = layer_of(target)
    if target_rank > rank:
        return f"{target} is further down the list of layers"
    if target_rank == rank and target_peer != peer:
        return f"{target} belongs to another backend"
    return None


def check(root: Path):
    """One line for each wrong include below `root`, and how many files were read."""
    problems, files = [], 0
    for file in sorted(f for top in ("include", "src", "cli", "python") for f in (root / top).rglob("*")):
        if file.suffix not in SOURCES:
            continue
        files += 1
        if layer_of(file.relative_to(root)) is None:
            problems.append(f"{file.relative_to(root)}: in no layer; add it to tools/check_includes.py")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            problem = match and check_include(root, file, *match.groups())
            if problem:
                problems.append(f"{file.relative_to(root)}:{number}: {problem}")
    return problems, files


if __name__ == "__main__":
    start = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    wrong, count = check(Path(start).resolve())
    print("\n".join(wrong) if wrong else f"{count} files: every include points up the list")
    sys.exit(1 if wrong else 0)
