"""The figures as a section of the page that `nvfp4 compare --html` writes."""

import html
import os
import re
from pathlib import Path

from .._checkpoint import compare
from .._errors import FormatError, InvalidValueError, IoError
from .table import rows

_OURS = re.compile(r"<section aria-labelledby='evaluation'>.*?</section>\n", re.S)
_PLACE = "<main>\n"


def section(report):
    """Returns the HTML section with the figures."""
    text = lambda value: html.escape(str(value), quote=True)
    head, *figures = rows(report)
    cells = lambda tag, values: "".join(f"<{tag}>{text(v)}</{tag[:2]}>" for v in values)
    body = "".join(f"<tr><th scope='row'>{text(name)}</th>{cells('td', values)}</tr>\n" for name, *values in figures)
    return ("<section aria-labelledby='evaluation'><h2 id='evaluation'>Accuracy on a text</h2>\n"
            f"<p>{text(Path(report['text']).name)}: {report['windows']} windows of {report['context']} tokens, on "
            f"{text(report['device'])} in {text(report['dtype'])}. Behind ± are standard errors, of a paired bootstrap over windows.</p>\n"
            "<div class='scroll' role='region' aria-label='Figures on a text' tabindex='0'><table><thead><tr><th scope='col'></th>"
            + "".join(f"<th scope='col'>{text(name)}</th>" for name in head[1:])
            + f"</tr></thead><tbody>\n{body}</tbody></table></div>\n</section>\n")


def write(report, file):
    """Writes the section into the page `file`, in the place of an earlier one. A page that does not exist is created
    first."""
    file = Path(file)
    if not file.exists():
        if "against" not in report:
            raise InvalidValueError(f"html = '{file}', must be a page of nvfp4 compare --html, or come with "
                                    "against, so that one can be made")
        compare(report["against"], report["model"], html=str(file))
    try:
        page = file.read_text(encoding="utf-8")
    except OSError as no:
        raise IoError.of(file, no) from no
    except UnicodeDecodeError as no:
        raise FormatError(f"{file}: {no}") from no
    page = _OURS.sub("", page)
    if not page.startswith("<!DOCTYPE html>") or page.count(_PLACE) != 1:
        raise FormatError(f"{file}: is no page of nvfp4 compare --html")
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_text(page.replace(_PLACE, _PLACE + section(report)), encoding="utf-8")
        os.replace(part, file)
    except OSError as no:
        part.unlink(missing_ok=True)
        raise IoError.of(file, no) from no
