"""Each link between the pages of the documentation leads to a page, heading, image or file of the tree."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]

spec = importlib.util.spec_from_file_location("doxygen_markdown", ROOT / "tools/doxygen_markdown.py")
markdown = importlib.util.module_from_spec(spec)
spec.loader.exec_module(markdown)


def filtered(page):
    parts = markdown.filtered(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
    return "\n".join(parts)


def test_headings():
    anchors = {label for page in PAGES for label in re.findall(r"\{#(\S+)\}", filtered(page))}
    assert "docs-library-gemm" in anchors and "README" in anchors
    for page in PAGES:
        for label in re.findall(r"\]\(@ref ([^)]+)\)", filtered(page)):
            assert label in anchors, (page.name, label)


def test_files():
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        for _, _, target in markdown.LINK.findall(text):
            target = target.partition("#")[0]
            if target and not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), (page.name, target)


def test_the_filter():
    page = ROOT / "docs" / "a.md"
    text = "# A\n\n[see\nb](b.md#two-words) ![x](img/y.svg)\n\n```sh\n# [code](b.md)\n```\n## Two `words`, *here*\n[f](../f.cc)\n"
    assert "\n".join(markdown.filtered(page.relative_to(ROOT).as_posix(), text)).split("\n") == [
        "# A {#docs-a}", "", "[see", "b](@ref docs-b-two-words) ![x](y.svg)", "", "```sh", "# [code](b.md)",
        "```", "## Two `words`, *here* {#docs-a-two-words-here}", "f (f.cc)"]
