"""The documentation as a site, for Sphinx: tools/docs_site.sh"""

project = "nvfp4.cpp"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]
html_theme = "furo"
html_title = project
html_extra_path = ["../build/site-cpp"]
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # a page opened as a file cannot read others
autodoc_member_order = "bysource"
autodoc_mock_imports = ["safetensors", "torch", "transformers"]
myst_heading_anchors = 4
suppress_warnings = ["myst.xref_missing"]  # links to sources; tests/python/test_docs_links.py checks all links

SECTIONS = {
    "Quantize": ["docs/commands", "docs/recipes", "docs/accuracy", "docs/ranks"],
    "Check": ["docs/verify", "docs/selftest"],
    "Convert": ["docs/conversions", "docs/gguf"],
    "Serve": ["docs/serving", "docs/benchmarks"],
    "Calibrate": ["docs/calibration"],
    "Embed in C++": ["docs/library", "docs/layers", "docs/layouts", "docs/numerics"],
    "Reference": ["docs/python"],
    "Project": ["docs/install", "CONTRIBUTING", "docs/architecture", "docs/fuzzing", "CHANGELOG", "SECURITY"],
    "Notes": [":glob:", "docs/notes/*"],
}
REFERENCE = """
## Reference

```{eval-rst}
.. automodule:: nvfp4
   :members:
.. automodule:: nvfp4.torch
   :members:
.. automodule:: nvfp4.calibrate
   :members:
.. automodule:: nvfp4.evaluate
   :members:
```
"""


def add_generated(app, page, source):
    """Adds to a page what only the site has: the order of pages, the references of Python and C++."""
    if page == "README":
        for caption, pages in SECTIONS.items():
            source[0] += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", *pages, "```\n"])
    elif page == "docs/python":
        source[0] += REFERENCE
    elif page == "docs/library":
        source[0] += '\n## Reference\n\n<a href="../cpp/files.html">The comments of the headers, as pages</a>\n'


def as_written(app, what, name, object, options, lines):
    """Shows a docstring as help() does, after its first line."""
    lines[1:] = ["", "::", "", *(f"   {line}" for line in lines[1:])] if any(lines[1:]) else []


def setup(app):
    app.connect("source-read", add_generated)
    app.connect("autodoc-process-docstring", as_written)
