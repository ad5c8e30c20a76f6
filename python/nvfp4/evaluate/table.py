"""The figures as text."""

from pathlib import Path


def rows(report):
    """Yields (name, value of the model, value of the other model) of each figure, after the names of both."""
    figure = lambda f, factor=1, digits=2: f"{f['value'] * factor:.{digits}f} ± {f['error'] * factor:.{digits}f}"
    compared = "against" in report
    yield "", Path(report["model"]).name, Path(report["against"]).name if compared else ""
    yield ("perplexity", figure(report["perplexity"], digits=3),
           figure(report["against_perplexity"], digits=3) if compared else "")
    if compared:
        yield "change of perplexity", figure(report["perplexity_change_percent"]) + " %", ""
        yield "KL divergence, millinats per token", figure(report["divergence"], 1e3), ""
        yield "top-1 agreement", figure(report["same_first_choice"], 100) + " %", ""
    for name, key, factor, digits in (("weights, MB", "bytes", 1e-6, 1),
                                      ("tokens per second, scored", "tokens_per_second", 1, 0),
                                      ("tokens per second, decoded", "decoded_tokens_per_second", 1, 1)):
        yield (name, *(f"{report[k][key] * factor:.{digits}f}" if k in report else ""
                       for k in ("figures", "against_figures")))


def lines(report):
    """Yields the lines of the report for a terminal."""
    table = list(rows(report))
    widths = [max(len(row[i]) for row in table) for i in range(3)]
    yield (f"{Path(report['text']).name}: {report['windows']} windows of {report['context']} tokens, on "
           f"{report['device']} in {report['dtype']}")
    yield ""
    for name, *values in table:
        yield f"{name:<{widths[0]}}  {values[0]:>{widths[1]}}  {values[1]:>{widths[2]}}".rstrip()
