#!/usr/bin/env python3
"""Writes the architectures that releases of engines declare into data/engines.txt.

vLLM's are the keys of the tables in models/registry.py, SGLang's the entry classes of srt/models,
TensorRT-LLM's the table in docs/source/models/supported-models.md. Nothing is imported.

usage: engine_models.py data/engines.txt VLLM_WHEEL SGLANG_WHEEL SUPPORTED_MODELS.md COMMIT_OF_IT
"""

import argparse
import ast
import pathlib
import re
import zipfile

def version_of(wheel):
    return pathlib.Path(wheel).name.split("-")[1].split("+")[0]


def vllm_models(wheel):
    """Keys of the tables of models; those of drafts and of other backends are no models of their own."""
    tree = ast.parse(zipfile.ZipFile(wheel).read("vllm/model_executor/models/registry.py"))
    for node in tree.body:
        name = getattr(getattr(node, "targets", [None])[0], "id", "")
        if (name.endswith("_MODELS") and isinstance(node.value, ast.Dict)
                and not re.search("SPECULATIVE|TRANSFORMERS|SUPPORTED|^_VLLM", name)):
            yield from (key.value for key in node.value.keys if key is not None)


def sglang_models(wheel):
    files = zipfile.ZipFile(wheel)
    for file in files.namelist():
        if not re.fullmatch(r"sglang/srt/models/.*\.py", file):
            continue
        for node in ast.parse(files.read(file)).body:
            if getattr(getattr(node, "targets", [None])[0], "id", "") == "EntryClass":
                yield from (n.id for n in ast.walk(node.value) if isinstance(n, ast.Name))


def tensorrt_models(page):
    return re.findall(r"^\| `(\w+)`", pathlib.Path(page).read_text(encoding="utf-8"), re.M)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for argument in ("out", "vllm", "sglang", "tensorrt", "commit"):
        parser.add_argument(argument)
    options = parser.parse_args()
    models = {"vllm": (f"vLLM {version_of(options.vllm)}", vllm_models(options.vllm)),
              "sglang": (f"SGLang {version_of(options.sglang)}", sglang_models(options.sglang)),
              "tensorrt-llm": (f"TensorRT-LLM at {options.commit[:8]}", tensorrt_models(options.tensorrt))}
    values = {f"{loader} {field}": value for loader, (version, names) in models.items()
              for field, value in (("version", version), ("declared", " ".join(sorted(set(names)))))}
    out = pathlib.Path(options.out)
    text = ""
    for line in out.read_text(encoding="utf-8").splitlines():
        loader, field, value = line.split(" ", 2)
        text += f"{loader} {field} {values.get(f'{loader} {field}', value)}\n"
    out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
