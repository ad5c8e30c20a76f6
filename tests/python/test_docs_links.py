"""Each link between the pages of the documentation leads to a page, heading, image or file of the tree."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^()\[\]\s]+)\)")


def prose(page):
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """Returns GitHub's anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)", prose(page), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def test_links_lead_somewhere():
    links = [(page, target) for page in PAGES for target in LINK.findall(prose(page)) if ":" not in target]
    assert len(links) > 100
    for page, target in links:
        file, _, anchor = target.partition("#")
        file = page.parent / file if file else page
        assert file.exists(), (page.name, target)
        assert not anchor or anchor in anchors(file), (page.name, target)


def test_headings_have_anchors():
    assert {"the-python-package", "gemm-on-a-gpu", "torchcompile"} <= anchors(ROOT / "docs/python.md")


def test_the_site_has_a_section_for_each_page():
    sections = runpy.run_path(str(ROOT / "docs/conf.py"))["SECTIONS"]
    listed = {page for pages in sections.values() for page in pages if "*" not in page and page != ":glob:"}
    pages = {f"docs/{page.stem}" for page in (ROOT / "docs").glob("*.md")}
    assert pages == {page for page in listed if page.startswith("docs/")}
    assert all((ROOT / f"{page}.md").exists() for page in listed)
