"""Signatures, docstrings and type stubs of the functions on checkpoints, from the tables of options.

usage, when the package is built: python _signatures.py STUB    with nvfp4/_core beside it
"""

import inspect
import json
import textwrap

_TYPES = {"flag": "bool", "integer": "int", "number": "float", "size": "Union[int, str]", "word": "str",
          "path": "Path", "list": "Iterable[str]"}
_PROGRESS = ("called as progress(tensor, tensors_done, tensors_total, bytes_done, bytes_total), from any thread; "
             "True: a tqdm bar, also in notebooks")
_STUB = '''"""Types of the functions on checkpoints, from the tables of options."""

from os import PathLike
from typing import Any, Callable, Dict, Iterable, Optional, Union

Path = Union[str, "PathLike[str]"]
Report = Dict[str, Any]
#: Called with (tensor, tensors_done, tensors_total, bytes_done, bytes_total); True: a tqdm bar
Progress = Union[bool, Callable[[str, int, int, int, int], None]]

'''


def commands(core):
    """Returns the commands that have a function, by their names."""
    return {command["name"]: command for command in json.loads(core.commands())}


def default(option):
    """Returns the default of an option in Python."""
    if option["kind"] == "list":
        return ()
    return option["fallback"]


def annotation(option):
    """Returns the type of an option as text."""
    kind = _TYPES[option["kind"]]
    if str(default(option)).isdecimal() and kind == "str":
        kind = "Union[int, str]"  # a number or a word, such as "auto"
    return f"Optional[{kind}]" if default(option) is None and not option["required"] else kind


def signature(command):
    """Returns the signature of a command's function: arguments are positional, options have keywords."""
    kinds = inspect.Parameter
    parameters = [kinds(o["keyword"], kinds.POSITIONAL_OR_KEYWORD) for o in command["options"] if o["required"]]
    parameters += [kinds(o["keyword"], kinds.KEYWORD_ONLY, default=default(o))
                   for o in command["options"] if not o["required"]]
    parameters.append(kinds("progress", kinds.KEYWORD_ONLY, default=None))
    return inspect.Signature(parameters)


def documentation(command, more=""):
    """Returns the docstring of a command's function."""
    width, lines = 12, []
    for keyword, text in [*((o["keyword"], o["text"]) for o in command["options"]), ("progress", _PROGRESS)]:
        wrapped = textwrap.wrap(text, 100 - 4 - width - 1, break_on_hyphens=False)
        head = keyword.ljust(width - 1) + " "
        if len(head) > width:
            lines.append(head.rstrip())
            head = " " * width
        lines += [head + wrapped[0], *(" " * width + line for line in wrapped[1:])]
    parts = [command["summary"] + ".", "\n".join(lines), *([more.strip()] if more.strip() else [])]
    return "\n\n".join(parts) + "\n"


def stub(all_commands):
    """Returns the type stub of all functions."""
    text = _STUB
    for command in all_commands.values():
        options = command["options"]
        words = [f"{o['keyword']}: {annotation(o)}" for o in options if o["required"]] + ["*"]
        words += [f"{o['keyword']}: {annotation(o)} = {default(o)!r}" for o in options if not o["required"]]
        words.append("progress: Optional[Progress] = None")
        start = f"def {command['function']}("
        body = textwrap.fill(", ".join(words), 110, initial_indent=start, subsequent_indent=" " * 4,
                             break_long_words=False, break_on_hyphens=False)
        text += f"{body}) -> Report: ...\n"
    return text


if __name__ == "__main__":
    import sys

    import _core

    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(stub(commands(_core)))
