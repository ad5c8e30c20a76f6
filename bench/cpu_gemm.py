#!/usr/bin/env python3
"""Measures GEMM on this CPU beside the machine's limits and prints the tables of docs/benchmarks.md.

usage: bench/cpu_gemm.py [--bench BINARY] [--backends NAMES] [--seconds S] [--repetitions R]
                         [--peer NAME=COMMAND]... [--json FILE] [--from FILE]

BINARY    build/release/bench/nvfp4_bench; limits and products are measured in one run of it
NAMES     such as cpu-amx,cpu-avx2; all that can run here if not given
S         of each measurement, default 0.3
R         how often each is taken, default 3, all of them mixed; the best counts, as other work on
          the machine only ever makes a call slower
--peer    another library, measured in the same run: COMMAND S prints a line of JSON for each product
          of N = 4096 and K = 7168, such as {"type": "q4_0", "m": 64, "threads": 2, "gflops": 1.5,
          "gbs": 2.5}, gbs of weights. It is run R times, and the best counts.
          bench/peers/build.sh builds such programs for ggml, ik_llama.cpp and oneDNN
--json    writes the raw results, without the names of the machine and of its folders
--from    takes raw results from FILE instead of measuring
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROWS = (1, 4, 16, 64, 256, 512)
AIMS = [("w4a4", 4, 300), ("w4a4", 16, 450)] + [
    (kind, m, aim) for kind, aim in (("w4a4", 560), ("w4a16", 390)) for m in ROWS[3:]
]
LIMITS = (
    ("read", "read, GB/s"),
    ("copy", "copy, GB/s read + written"),
    ("vpdpbusd_zmm", "vpdpbusd zmm, GOP/s"),
    ("tdpbf16ps", "tdpbf16ps, GFLOP/s"),
    ("vdpbf16ps_zmm", "vdpbf16ps zmm, GFLOP/s"),
    ("fma_zmm", "FMA zmm, GFLOP/s"),
    ("fma_ymm", "FMA ymm, GFLOP/s"),
)


def figure(benchmark):
    return next(benchmark[f] for f in ("GFLOP/s", "GB/s", "share") if f in benchmark)


def best_repetitions(benchmarks):
    """Returns the best repetition of each name. Of shares it is the median, since they may err either way."""
    all_of = {}
    for b in benchmarks:
        if "error_occurred" in b:
            raise SystemExit(f"{b['name']}: {b['error_message']}")
        if b["run_type"] == "iteration":
            all_of.setdefault(b["name"], []).append(b)
    ranked = [sorted(some, key=figure) for some in all_of.values()]
    return [some[len(some) // 2 if "share" in some[0] else -1] for some in ranked]


def measure(bench, backends, seconds, repetitions):
    """Raw results of one run."""
    names = "|".join(backends.split(",")) if backends else ".*"
    wanted = f"^gemm_limits/|^gemm_pack/nvfp4|^gemm(_pack|_share)?/({names})/"
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "results.json")
        command = [bench, f"--benchmark_filter={wanted}", f"--benchmark_min_time={seconds}"]
        command += [f"--benchmark_repetitions={repetitions}"]
        command += ["--benchmark_enable_random_interleaving=true"]
        command += [f"--benchmark_out={out}", "--benchmark_out_format=json"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        with open(out, encoding="utf-8") as file:
            raw = json.load(file)
    raw["benchmarks"] = best_repetitions(raw["benchmarks"])
    for private in ("host_name", "executable", "load_avg"):
        raw["context"].pop(private, None)
    raw["context"]["date"] = raw["context"]["date"][:10]
    return raw


def measure_peer(command, seconds, repetitions):
    """The best figures of every type, number of rows and number of threads."""
    best = {}
    for _ in range(repetitions):
        lines = subprocess.run(
            [*shlex.split(command), str(seconds)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        for line in lines.splitlines():
            product = json.loads(line)
            key = product["type"], product["m"], product["threads"]
            best[key] = max(product, best.get(key, product), key=lambda p: p["gflops"])
    return list(best.values())


def peer_table(name, products):
    """Returns the table of one library, with a column for each of its types."""
    types = list(dict.fromkeys(p["type"] for p in products))
    found = {(p["type"], p["m"], p["threads"]): p for p in products}

    def pair(kind, m, unit):
        figures = [found.get((kind, m, t)) for t in (1, 2)]
        return None if None in figures else [f[unit] for f in figures]

    def cell(kind, m):
        rates = f" ({both(pair(kind, m, 'gbs'))})" if m == 1 else ""
        return both(pair(kind, m, "gflops")) + rates

    print(f"{name}, GFLOP/s on one and two threads, in brackets GB/s of weights:\n")
    table(["M", *types], [[str(m)] + [cell(t, m) for t in types] for m in ROWS])


class Results:
    """Figures by the names of the benchmarks, without what follows their threads."""

    def __init__(self, raw):
        self.figures = {}
        for b in raw["benchmarks"]:
            name = re.sub("(/iterations:[0-9]+)?/real_time$", "", b["name"])
            self.figures[name] = figure(b)

    def pair(self, name):
        """On one thread and on two; None where it was not measured."""
        figures = [self.figures.get(f"{name}/threads:{t}") for t in (1, 2)]
        return None if None in figures else figures

    def limit(self, name):
        """The fastest of the ways to reach it: gemm_limits/<name>, or gemm_limits/<name>_<way>."""
        prefix = f"gemm_limits/{name}"
        ways = {n.partition("/threads:")[0] for n in self.figures if n.startswith(prefix)}
        pairs = [p for w in ways if (p := self.pair(w))]
        return [max(figures) for figures in zip(*pairs)] if pairs else None

    def gemm(self, backend, kind, m):
        return self.pair(f"gemm/{backend}/{kind}/M:{m}")

    def backends(self):
        return sorted({n.split("/")[1] for n in self.figures if n.startswith("gemm/")})


def both(figures, digits=0):
    return " / ".join(f"{f:.{digits}f}" for f in figures) if figures else "–"


def aims(results):
    """(what, aim, measured, whether it is reached) of issue-like targets, on the best backends."""
    backends = results.backends()
    wide = [b for b in backends if b.startswith(("cpu-amx", "cpu-avx512"))] or backends

    def most(pairs):
        found = [p for p in pairs if p]
        return [max(figures) for figures in zip(*found)] if found else None

    def best(kind, m, of=wide):
        return most(results.gemm(b, kind, m) for b in of)

    def share(kind):
        return most(results.pair(f"gemm_share/{b}/{kind}") for b in wide)

    def row(what, aim, figures, digits, reached):
        verdict = "–" if not figures else "reached" if reached(figures) else "missed"
        return what, aim, both(figures, digits), verdict

    for kind in ("w4a4", "w4a16"):
        name = f"decode, {kind.upper()}"
        yield row(name, "0.85 of reading", share(kind), 2, lambda f: f[1] >= 0.85)
    halves = []  # on one thread, as shares of half the aim
    for kind, m, aim in AIMS:
        figures = best(kind, m)
        halves += [figures[0] / (aim / 2)] if figures else []
        yield row(f"M = {m}, {kind.upper()}", str(aim), figures, 0, lambda f, aim=aim: f[1] >= aim)
    least = [min(halves)] if halves else None
    yield row("one thread, least share of half these aims", "1", least, 2, lambda f: f[0] >= 1)
    ratios = [f[0] / f[1] for k in ("w4a4", "w4a16") for m in ROWS if (f := best(k, m))]
    spread = [min(ratios), max(ratios)] if ratios else None
    yield row("one thread, least / most of two", "0.5", spread, 2, lambda f: f[0] >= 0.495)
    for m in ROWS[3:]:
        figures = best("w4a4", m, of=["cpu-avx2"])
        yield row(f"AVX2, M = {m}, W4A4", "250", figures, 0, lambda f: f[1] >= 250)
    yield row("packing BF16 → ready", "0.3 of copy", share("pack"), 2, lambda f: f[1] >= 0.3)


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build/release/bench/nvfp4_bench")
    parser.add_argument("--backends")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--repetitions", type=int, default=3)
    peer = "another library; bench/peers/build.sh builds programs that measure some"
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help=peer)
    parser.add_argument("--json")
    parser.add_argument("--from", dest="given")
    args = parser.parse_args()
    if args.given:
        with open(args.given, encoding="utf-8") as file:
            raw = json.load(file)
    else:
        raw = measure(args.bench, args.backends, args.seconds, args.repetitions)
        raw["peers"] = {
            name: measure_peer(command, args.seconds, args.repetitions)
            for name, _, command in (p.partition("=") for p in args.peer)
        }
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(raw, file, indent=1)
            file.write("\n")
    results = Results(raw)
    limits = [(text, both(results.limit(name), 1)) for name, text in LIMITS]
    table(("limit", "1 / 2 threads"), [row for row in limits if row[1] != "–"])
    columns = [(b, k) for b in results.backends() for k in ("w4a4", "w4a16")]
    print("GFLOP/s on one and two threads:\n")
    table(
        ["M"] + [f"{k.upper()} `{b}`" for b, k in columns],
        [[str(m)] + [both(results.gemm(b, k, m)) for b, k in columns] for m in ROWS],
    )
    table(("what", "aim (two threads)", "1 / 2 threads", ""), aims(results))
    for name, products in raw.get("peers", {}).items():
        peer_table(name, products)


if __name__ == "__main__":
    main()
