"""The command `nvfp4 evaluate`."""

import json
import sys
from pathlib import Path

from .._checkpoint import require_apart
from .._cli import Parser
from .table import lines


def arguments(given=None):
    a = Parser(
        prog="nvfp4 evaluate",
        description="Measures what quantizing cost a model on a text: perplexity, and divergence from the model in "
                    "BF16, with standard errors by a paired bootstrap over windows.")
    a.add_argument("model", metavar="MODEL", help="a folder that transformers loads, quantized or not")
    a.add_argument("--against", metavar="BF16", help="the model that it was quantized from")
    a.add_argument("--text", metavar="FILE", required=True,
                   help="UTF-8; a line with U+001E alone separates documents")
    a.add_argument("--windows", type=int, default=192, metavar="N", help="number of windows of the text (192)")
    a.add_argument("--context", type=int, default=512, metavar="N", help="tokens in a window (512)")
    a.add_argument("--batch", type=int, metavar="N", help="windows at a time (2; on a GPU 8)")
    a.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (cuda if there is a GPU)")
    a.add_argument("--dtype", choices=("float32", "bfloat16", "float16"),
                   help="dtype of unquantized layers, in both models (float32; on a GPU bfloat16)")
    a.add_argument("--json", metavar="FILE", help="write the figures to FILE as JSON; -: to the terminal")
    a.add_argument("--html", metavar="FILE",
                   help="add the figures to FILE, a page of nvfp4 compare --html; with --against the page is made if "
                        "it does not exist")
    return a.parse_args(given)


def main(given=None):
    options = arguments(given)
    import transformers

    from . import evaluate, page

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    def progress(done, total):
        if sys.stderr.isatty():
            print(f"\r{done} of {total} windows", end="\n" if done == total else "", file=sys.stderr)

    require_apart({"MODEL": options.model, "--against": options.against, "--text": options.text},
                  {"--json": None if options.json == "-" else options.json, "--html": options.html})
    report = evaluate(
        options.model, options.text, options.against, windows=options.windows, context=options.context,
        batch=options.batch, device=options.device, dtype=options.dtype, progress=progress)
    if options.json == "-":
        print(json.dumps(report, indent=1))
    else:
        print("\n".join(lines(report)))
    if options.json not in (None, "-"):
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    if options.html:
        page.write(report, options.html)
    return 0
