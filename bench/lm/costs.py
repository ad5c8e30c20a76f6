#!/usr/bin/env python3
"""Measures error, time and memory of quantizing the weights of a model with nvfp4 and with its peers.

  costs.py MODEL... --nvfp4 build/command/nvfp4 --peers FOLDER [--runs 3] [--skip "ModelOpt mse"] > costs.json
  costs.py --chart docs/costs.json docs/costs.svg

FOLDER holds the environments that peers.sh makes. Every method writes W4A16 in BF16 arithmetic without
calibration data, with one thread. Measured is the whole process, from its start to the last byte of the
output: seconds of the processor (user and system; the least of the runs, so that other load does not count)
and the largest resident memory, as /usr/bin/time says. The error is that of all weights together against the
BF16 model, relative, as `nvfp4 compare` reports it. docs/costs.json lists the models of several such runs; the
chart has its errors of the first and time and memory of the last.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

METHODS = [("nvfp4", "max"), ("nvfp4", "mse"), ("ModelOpt", "max"), ("ModelOpt", "mse"),
           ("llm-compressor", "max"), ("llm-compressor", "mse")]
#: Of each package: its environment, and what peers.py calls its methods.
PEERS = {"ModelOpt": ("modelopt", {"max": "modelopt-w4a16", "mse": "modelopt-w4a16-mse"}),
         "llm-compressor": ("llmcompressor", {"max": "llmcompressor-w4a16", "mse": "llmcompressor-w4a16-mse"})}
PANELS = [("relative_error", "relative error of the weights", 100, "{:.2f} %"),
          ("cpu_seconds", "seconds of one core, whole process", 1, "{:.1f} s"),
          ("peak_bytes", "peak memory", 1e-6, "{:.0f} MB")]
COLORS = {"nvfp4": "#3f7fbf", "ModelOpt": "#999999", "llm-compressor": "#bbbbbb"}
BAR, LEFT, WIDTH = 20, 150, 420


def command_of(package, rule, model, out, options):
    if package == "nvfp4":
        return [options.nvfp4, "quantize", model, out, "--scheme", "w4a16", "--method", rule,
                "--threads", "1", "--quiet"]
    environment, names = PEERS[package]
    return [f"{options.peers}/{environment}/bin/python", str(Path(__file__).with_name("peers.py")), names[rule],
            model, out, "--dtype", "bfloat16"]


def timed(command):
    """Seconds of the processor, seconds of the clock, and bytes."""
    run = subprocess.run(["/usr/bin/time", "-f", "%U %S %e %M", *command], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if run.returncode != 0:
        sys.exit(run.stderr)
    user, system, clock, kilobytes = map(float, run.stderr.strip().splitlines()[-1].split())
    return user + system, clock, int(kilobytes) * 1024


def measure(model, options):
    rows = []
    for package, rule in METHODS:
        if f"{package} {rule}" in options.skip:
            continue
        with tempfile.TemporaryDirectory() as folder:
            runs = [timed(command_of(package, rule, model, f"{folder}/{n}", options)) for n in range(options.runs)]
            difference = subprocess.run([options.nvfp4, "compare", model, f"{folder}/0", "--json"],
                                        stdout=subprocess.PIPE, check=True).stdout
        cpu, clock, peak = (min(of_run) for of_run in zip(*runs))
        report = json.loads(difference)
        if report["shape_mismatch"] or report["only_in_b"]:
            sys.exit(f"{package} {rule}: the output has other tensors than {model}")
        rows.append(dict(package=package, rule=rule, relative_error=report["relative_error"],
                         weights=report["different"], cpu_seconds=round(cpu, 2), seconds=round(clock, 2),
                         peak_bytes=peak))
        print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def machine():
    name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return name[1] if name else platform.machine()


def chart(measured):
    parts, y = [], 10
    for key, title, unit, form in PANELS:
        of_model = measured["models"][0 if key == "relative_error" else -1]
        longest = max(r[key] for r in of_model["rows"])
        y += 24
        parts.append(f'<text x="{LEFT}" y="{y - 8}" font-weight="bold">{title}, {of_model["name"]}</text>')
        for r in of_model["rows"]:
            length = r[key] / longest * WIDTH
            parts += [f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{r["package"]} {r["rule"]}</text>',
                      f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{BAR - 4}" '
                      f'fill="{COLORS[r["package"]]}"/>',
                      f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}">{form.format(r[key] * unit)}</text>']
            y += BAR
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 80}" height="{y + 10}" '
            'font-family="sans-serif" font-size="12">'
            '<title>Error, time and memory of quantizing weights, beside ModelOpt and llm-compressor</title>'
            '<rect width="100%" height="100%" fill="white"/>')
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("models", nargs="*", metavar="MODEL", help="folders of BF16 models")
    a.add_argument("--nvfp4", default="build/command/nvfp4", help="the command (build/command/nvfp4)")
    a.add_argument("--peers", default="build/peers", help="where peers.sh made environments (build/peers)")
    a.add_argument("--runs", type=int, default=3, help="of each method (3)")
    a.add_argument("--skip", action="append", default=[], metavar="NAME", help="a method to leave out; repeatable")
    a.add_argument("--chart", nargs=2, metavar=("JSON", "SVG"), help="draw what was measured")
    options = a.parse_args()
    if options.chart:
        measured = json.loads(Path(options.chart[0]).read_text())
        return Path(options.chart[1]).write_text(chart(measured), encoding="utf-8")
    models = [dict(name=Path(m).name, bytes=sum(f.stat().st_size for f in Path(m).glob("*.safetensors")),
                   rows=measure(m, options)) for m in options.models]
    print(json.dumps(dict(machine=machine(), models=models), indent=1))


if __name__ == "__main__":
    main()
