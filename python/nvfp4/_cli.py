"""The `nvfp4` command: runs calibrate and evaluate, and for all else the program of the same name inside the package."""

import argparse
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys

from ._ask import ASKED, answers
from ._errors import Error, InvalidValueError, IoError, UnsupportedError
from ._hub import can_download, download_model

#: The commands that run in this process. The modules are found without the working folder, whose code must not run.
HERE = {name: f"nvfp4.{name}.command" for name in ("calibrate", "evaluate")}


class Parser(argparse.ArgumentParser):
    """A parser whose errors look like those of the program."""

    def error(self, message):
        fail(InvalidValueError(f"{message}; hint: '{self.prog} --help' lists all options", code="NV0901"))
        sys.exit(2)


def fail(error):
    """Prints an error as the program does, with a hint, and returns the exit status."""
    message = str(error).partition("; hint: ")[0]
    if found := re.match("([a-z][a-z0-9_]*) = (?:'?(.*?)'?(?=, must be ))?", message):
        value = " " if found[2] is None else f": '{found[2]}'"
        message = f"--{found[1].replace('_', '-')}{value}{message[found.end():]}"
    print(f"nvfp4: error: {printable(message)} [{error.code}]\nhint: {printable(error.fix)}", file=sys.stderr)
    return 1


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


def printable(text):
    """Returns a text as one line without control characters, which a server or a file may have sent."""
    return "".join(c if c.isprintable() else " " for c in str(text).strip())


def run_here(name, words):
    """Runs a command of this package and returns its exit status. After Ctrl-C prints how to go on."""
    try:
        return importlib.import_module(HERE[name]).main(words)
    except Error as error:
        return fail(error)
    except OSError as error:
        return fail(IoError.of(error.filename or name, error))
    except ModuleNotFoundError as missing:
        if (missing.name or "nvfp4").partition(".")[0] == "nvfp4":
            raise
        return fail(UnsupportedError(f"{name} needs the Python package {missing.name}; hint: "
                                     "pip install '.[transformers]' in a clone of nvfp4.cpp"))
    except KeyboardInterrupt:
        resumes = name == "calibrate" and not {"--dry-run", "--merge"} & set(words)
        again = ["nvfp4", name, *words, *(["--resume"] if resumes and "--resume" not in words else [])]
        print(f"\nnvfp4: interrupted; {'to continue' if resumes else 'nothing was written; to start again'}: "
              f"{printable(shlex.join(again))}", file=sys.stderr, flush=True)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def main():
    words = sys.argv[1:]
    if words[:1] == ["help"] and words[1:] and words[1] in HERE:
        words = [words[1], "--help"]
    if words and words[0] in HERE:
        sys.exit(run_here(words[0], words[1:]))
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "nvfp4")
    try:
        for name in missing_models([program, *words]) if can_download() else ():
            try:
                download_model(name)
            except Exception as error:  # the program reports the missing model
                print(f"nvfp4: {name}: {printable(f'{type(error).__name__}: {error}')}", file=sys.stderr)
        if answer := answer_question([program, *words]):
            os.environ["NVFP4_LOADER_ANSWERS"] = answer
    except KeyboardInterrupt:
        sys.exit(130)
    os.execv(program, ["nvfp4", *words])
