#!/usr/bin/env python3
"""Prints a Markdown file as Doxygen reads it: headings get anchors, links point to them.

usage: doxygen_markdown.py FILE    (FILTER_PATTERNS of docs/Doxyfile)

Doxygen before 1.10 gives headings no anchors of GitHub's kind, and its anchors are global: "gemm" of
docs/library.md becomes "library-gemm". Links to files that the reference does not have become their paths.
"""

import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()\[\]\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")


def anchor(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def label(path, name):
    """The anchor of a heading of a file, or of the file itself."""
    stem = "-".join(Path(path).with_suffix("").parts[-2:]) if "/" in path else Path(path).stem
    return f"{stem}-{name}" if name else stem


def linked(path, match):
    """A link of the file `path`, as Doxygen resolves it."""
    image, text, target = match.groups()
    if re.match(r"[a-z]+:", target):
        return match[0]
    file, _, name = target.partition("#")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
    if image:
        return f"![{text}]({posixpath.basename(file)})"
    if file.endswith(".md"):
        return f"[{text}](@ref {label(file, name)})"
    return text if file in text else f"{text} ({file})"


def prose(path, lines, first):
    """Lines outside of code, `first` if they begin the file `path`."""
    for number, line in enumerate(lines):
        heading = re.match(r"(#+) (.*)", line)
        if heading:
            name = label(path, "" if first and number == 0 else anchor(heading[2]))
            lines[number] = f"{heading[1]} {heading[2]} {{#{name}}}"
    return LINK.sub(lambda match: linked(path, match), "\n".join(lines))


def filtered(path, text):
    """The parts of the file `path`: prose, code between fences, prose, ..."""
    part, fenced = [], False
    first = True
    for line in [*text.splitlines(), None]:
        fence = line is not None and FENCE.match(line)
        if (line is None or fence) and not fenced:
            yield prose(path, part, first)
            part, first = [], False
        if line is not None:
            part.append(line)
        if fence and fenced:
            yield "\n".join(part)
            part = []
        fenced ^= bool(fence)


def main():
    file = Path(sys.argv[1]).resolve()
    for part in filtered(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")):
        print(part)


if __name__ == "__main__":
    main()
