"""The command python -m nvfp4.evaluate."""

import argparse
import json
import sys
from pathlib import Path

from .._errors import Error


def arguments(given=None):
    a = argparse.ArgumentParser(
        prog="python -m nvfp4.evaluate",
        description="What quantizing cost a model on a text: perplexity, and divergence from the model in "
                    "BF16, with the errors of a paired bootstrap over windows.")
    a.add_argument("model", metavar="MODEL", help="a folder that transformers loads, quantized or not")
    a.add_argument("--against", metavar="BF16", help="the model that it was quantized from")
    a.add_argument("--text", metavar="FILE", required=True,
                   help="UTF-8; a line with U+001E alone separates documents")
    a.add_argument("--windows", type=int, default=192, metavar="N", help="how many (192)")
    a.add_argument("--context", type=int, default=512, metavar="N", help="tokens of a window (512)")
    a.add_argument("--batch", type=int, default=8, metavar="N", help="windows at a time (8)")
    a.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (cuda where there is one)")
    a.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32",
                   help="of what is not quantized (float32; on a GPU bfloat16)")
    a.add_argument("--json", metavar="FILE", help="write the figures as JSON; - is the terminal")
    return a.parse_args(given)


def lines(report):
    """The report for people: name, model, against."""
    figure = lambda f, factor=1, digits=2: f"{f['value'] * factor:.{digits}f} ± {f['error'] * factor:.{digits}f}"
    compared = "against" in report
    rows = [("", Path(report["model"]).name, Path(report["against"]).name if compared else ""),
            ("perplexity", figure(report["perplexity"], digits=3),
             figure(report["against_perplexity"], digits=3) if compared else "")]
    if compared:
        rows += [("change of perplexity", figure(report["perplexity_change_percent"]) + " %", ""),
                 ("divergence, 10⁻³ nat a token", figure(report["divergence"], 1e3), ""),
                 ("same first choice", figure(report["same_first_choice"], 100) + " %", "")]
    for name, key, factor, digits in (("weights, MB", "bytes", 1e-6, 1),
                                      ("tokens a second, scored", "tokens_per_second", 1, 0),
                                      ("tokens a second, decoded", "decoded_tokens_per_second", 1, 1)):
        rows.append((name, *(f"{report[k][key] * factor:.{digits}f}" if k in report else ""
                             for k in ("figures", "against_figures"))))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    yield (f"{Path(report['text']).name}: {report['windows']} windows of {report['context']} tokens, on "
           f"{report['device']}")
    yield ""
    for name, *values in rows:
        yield f"{name:<{widths[0]}}  {values[0]:>{widths[1]}}  {values[1]:>{widths[2]}}".rstrip()


def main(given=None):
    options = arguments(given)
    import transformers

    from . import evaluate

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    def progress(done, total):
        if sys.stderr.isatty():
            print(f"\r{done} of {total} windows", end="\n" if done == total else "", file=sys.stderr)

    try:
        report = evaluate(
            options.model, options.text, options.against, count=options.windows, context=options.context,
            batch=options.batch, device=options.device, dtype=options.dtype, progress=progress)
    except Error as error:
        print(f"nvfp4.evaluate: {error}", file=sys.stderr)
        return 1
    if options.json == "-":
        print(json.dumps(report, indent=1))
        return 0
    print("\n".join(lines(report)))
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
