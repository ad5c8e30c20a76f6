#!/usr/bin/env python3
"""Checks that two builds of the command write the same bytes: quantize, convert and repair of every model in a folder,
in every format. For changes that must not change any output.

usage: compare_outputs.py BEFORE AFTER MODELS    exit code 1 and one line for each file that differs

BEFORE may also be a .json file that `compare_outputs.py --record FILE COMMAND MODELS` wrote.
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

QUANTIZED = [(f, s) for f in ("modelopt", "compressed-tensors", "comfyui", "gguf")
             for s in ("w4a4", "w4a16")]
MORE_OPTIONS = [["--method", "max"], ["--method", "four_over_six"],
                ["--ignore", "*down*", "--include", "*embed*"], ["--keep-dtype"]]
TARGETS = ("modelopt", "compressed-tensors", "comfyui", "gguf", "bf16", "fp16")


def digest_of(output: Path):
    files = [output] if output.is_file() else sorted(p for p in output.rglob("*") if p.is_file())
    return {str(p.relative_to(output.parent)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def run(command, output: Path, *words):
    """Digests of what it wrote, or its error."""
    done = subprocess.run([command, *map(str, words), "--quiet"], capture_output=True, text=True, cwd=output.parent)
    result = digest_of(output) if output.exists() else {}
    said = done.stderr if done.returncode != 2 else ""  # the texts of usage may differ
    return result | {"status": done.returncode, "said": re.sub(r"/\S*/", "", said)}


def outputs_of(command, models: Path):
    """Name of each run -> what it wrote."""
    all_of = {}
    for model in sorted(models.iterdir()):
        with tempfile.TemporaryDirectory() as folder:
            made = []
            for format_name, scheme in QUANTIZED:
                output = Path(folder) / f"{format_name}-{scheme}{'.gguf' if format_name == 'gguf' else ''}"
                all_of[f"{model.name} quantize {output.name}"] = run(
                    command, output, "quantize", model, output.name, "--format", format_name, "--scheme",
                    scheme)
                if output.exists():
                    made.append(output)
            for options in MORE_OPTIONS:
                output = Path(folder) / "more"
                all_of[f"{model.name} quantize {' '.join(options)}"] = run(
                    command, output, "quantize", model, "more", "--overwrite", *options)
            for source in [model, *made]:
                for target in TARGETS:
                    output = Path(folder) / f"to{'.gguf' if target == 'gguf' else ''}"
                    all_of[f"{model.name} convert {source.name} {target}"] = run(
                        command, output, "convert", source, output.name, "--to", target, "--overwrite",
                        "--allow", "drop,decode")
                repaired = Path(folder) / "repaired"
                all_of[f"{model.name} repair {source.name}"] = run(
                    command, repaired, "repair", source, "repaired", "--overwrite", "--source", model)
    return all_of


def load(given, models):
    path = Path(given)
    return json.loads(path.read_text()) if path.suffix == ".json" else outputs_of(str(path.resolve()), models)


def main(words):
    if len(words) == 4 and words[0] == "--record":
        Path(words[1]).write_text(json.dumps(outputs_of(str(Path(words[2]).resolve()), Path(words[3]).resolve())))
        return 0
    before, after = (load(w, Path(words[2]).resolve()) for w in words[:2])
    different = 0
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, {}), after.get(name, {})
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                different += 1
                print(f"{name}: {key}: {old.get(key)} is now {new.get(key)}")
    print(f"{len(after)} runs, {sum(len(r) for r in after.values())} results, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
