#!/usr/bin/env python3
"""Checks what the compiler does not: length of files, size of folders, unfinished work, how comments begin, names of
tests, files that pages name, formatting.

usage: check_style.py [ROOT]    exit code 1 and one line for each problem
"""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

MAX_LINES = 500
MAX_FILES = 25  # of a folder of the checkpoint code
CPP = {".h", ".cc", ".cuh", ".cu"}
CODE = CPP | {".py", ".sh", ".cmake"}
FOLDERS = ("include", "src", "cli", "python", "tests", "bench", "examples", "tools", "cmake")
# Two halves, so that this file passes its own check.
UNFINISHED = re.compile(
    "|".join([r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bX" + r"XX\b", r"\bHA" + r"CK\b",
              r"\bfor " + r"now\b", r"\bnot " + r"implemented\b", r"\bplace" + r"holder\b"]))
# libstdc++'s wants arc4random(), which glibc has from 2.36 on; wheels are for 2.28.
NEWER_GLIBC = re.compile(r"std::random_device\s*[\w({]")
# What is of one operating system: src/platform alone has it, so that a new one is a folder there.
SYSTEM_HEADER = re.compile(r"\s*#\s*include\s*<(unistd\.h|fcntl\.h|c?signal(\.h)?|termios\.h|spawn\.h|sched\.h|"
                           r"pthread\.h|dirent\.h|poll\.h|windows\.h|io\.h|sys/.*)>")
# A comment that begins so continues the name below it, which readers do not parse.
COMMENT = re.compile(r"\s*///?(?![/<])\s*(.*)")
FOLDERS_OF_COMMENTS = ("include", "src", "cli", "python/src", "tests", "bench", "examples")
NO_BEGINNING = re.compile(r"(Of|Those|Which|What|Whether|Where|That|Far|Beside|As|How|Else|For all)\b")
# The name of a test, of GoogleTest or pytest, and the words of a name.
MAX_WORDS = 8
TEST_NAME = re.compile(r"^TEST(?:_F|_P)?\(\s*\w+,\s*(?:DISABLED_)?(\w+)\)|^ *def test_(\w+)", re.MULTILINE)
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
# The pages that name source files as "folder/file".
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")
SOURCE_NAME = re.compile(r"(?<![\w<>*/.-])\w[\w/]*/\w+\.(?:cc|h|cuh?|py|sh|txt)\b")
# Other versions break lines elsewhere, so only this one may judge.
CLANG_FORMAT = "clang-format-16"


def code_files(root: Path):
    """Every source file, and CMakeLists.txt."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in CODE or file.name == "CMakeLists.txt":
                yield file


def is_of_no_system(file: Path):
    """Reports whether the file is compiled for every operating system and is not below src/platform. portable is for
    old glibc."""
    folders = file.parts
    return ("src" in folders or "cli" in folders) and not {"platform", "portable", "tests", "bench"} & set(folders)


def check_text(file: Path):
    """Problems of one file: too long, or a word that marks unfinished work."""
    lines = file.read_text(encoding="utf-8").splitlines()
    if len(lines) > MAX_LINES:
        yield f"{file}: {len(lines)} lines, at most {MAX_LINES} are allowed"
    for number, line in enumerate(lines, 1):
        match = UNFINISHED.search(line)
        if match:
            yield f"{file}:{number}: '{match.group()}' marks unfinished work"
        if file.suffix in CPP and is_of_no_system(file) and SYSTEM_HEADER.match(line):
            yield f"{file}:{number}: only src/platform may include headers of one operating system"
        if file.suffix in CPP and "tests" not in file.parts and NEWER_GLIBC.search(line):
            yield f"{file}:{number}: std::random_device needs glibc 2.36; getentropy() does not"


def check_comments(root: Path, file: Path):
    """Comments, blocks of // or /// lines, whose first line begins with a word of NO_BEGINNING."""
    if not any(file.is_relative_to(root / folder) for folder in FOLDERS_OF_COMMENTS):
        return
    before = -1
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        comment, column = COMMENT.match(line), line.find("//")
        # A line below another at the same column continues it, also that of a trailing comment.
        match = comment and column != before and NO_BEGINNING.match(comment.group(1))
        if match:
            yield (f"{file}:{number}: a comment begins with '{match.group()}'; "
                   "begin with a verb (Returns …) or a noun (The …)")
        before = column


def check_test_names(file: Path):
    """Names of tests that have too many words."""
    for match in TEST_NAME.finditer(file.read_text(encoding="utf-8")):
        name = match[1] or match[2]
        count = len(WORD.findall(name))
        if count > MAX_WORDS:
            yield f"{file}: the name of test {name} has {count} words, at most {MAX_WORDS} are allowed"


def check_docstrings(file: Path):
    """Docstrings that begin with a word of NO_BEGINNING."""
    if file.suffix != ".py":
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            match = NO_BEGINNING.match(ast.get_docstring(node) or "")
            if match:
                yield (f"{file}:{getattr(node, 'lineno', 1)}: a docstring begins with '{match.group()}'; "
                       "begin with a verb (Returns …) or a noun (The …)")


def check_folders(root: Path):
    """Folders that hold too many files to be taken in at a glance."""
    for folder in sorted(f for f in (root / "src/checkpoint").glob("*") if f.is_dir()):
        count = sum(f.is_file() for f in folder.iterdir())
        if count > MAX_FILES:
            yield f"{folder}: {count} files, at most {MAX_FILES} are allowed"


def check_pages(root: Path):
    """Source files that a page names and that do not exist."""
    paths = [f"/{path.relative_to(root)}" for folder in (*FOLDERS, "data") for path in (root / folder).rglob("*")]
    for page in (root / name for name in PAGES if (root / name).exists()):
        for name in sorted(set(SOURCE_NAME.findall(page.read_text(encoding="utf-8")))):
            if not any(path.endswith(f"/{name}") for path in paths):
                yield f"{page}: names {name}, which does not exist"


def check_format(files):
    """One line for each file that clang-format would change."""
    run = subprocess.run([CLANG_FORMAT, "--dry-run", "-Werror", *files],
                         capture_output=True, text=True, check=False)
    changed = {line.split(":")[0] for line in run.stderr.splitlines() if "error:" in line}
    return [f"{file}: not formatted; tools/format.sh does it" for file in sorted(changed)]


def main(root: Path):
    files = list(code_files(root))
    problems = [problem for file in files for problem in check_text(file)]
    problems += check_folders(root)
    problems += check_pages(root)
    cpp = [file for file in files if file.suffix in CPP]
    problems += [problem for file in cpp for problem in check_comments(root, file)]
    tests = [file for file in files if file.is_relative_to(root / "tests")]
    problems += [problem for file in tests for problem in check_test_names(file)]
    problems += [problem for file in files for problem in check_docstrings(file)]
    can_format = shutil.which(CLANG_FORMAT) is not None
    if can_format and cpp:
        problems += check_format(cpp)
    for problem in problems:
        print(problem.removeprefix(f"{root}/"))
    if not problems and not can_format:
        print(f"skipped: {CLANG_FORMAT} is not installed; length and wording are fine")
    elif not problems:
        print(f"{len(files)} files: length, wording and formatting are fine")
    return 1 if problems else 0


if __name__ == "__main__":
    start = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    sys.exit(main(Path(start).resolve()))
