#!/usr/bin/env python3
"""Ranks of `nvfp4 quantize` on a file system that fails: they are killed, slow, started twice, meet
EIO, ESTALE, ENOSPC, names that stay absent and locks of one machine only. At no time a file may have
its name and other bytes than one process writes, or the folder look complete and not be it. Then
the ranks that failed are run again, and the output must be that of one process, byte for byte.

usage: ranks_under_faults.py COMMAND LAYER [--ranks N] [--rounds N] [--seed N] [--shards N] [--kind KIND]
"""

import argparse
import collections
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

JOURNAL = "nvfp4.partial.json"
FAULTS = ("kill", "EIO", "ESTALE", "ENOSPC", "short")
KINDS = ("plain", "names", "local locks")
AT_ONCE = 16
TIMEOUT = 120


class Wrong(Exception):
    """An outcome that must never occur."""


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*")) if file.is_file()}


def check(out, expected):
    """Nothing in `out` is half or wrong. Whether it is complete. Ranks may be at work."""
    complete = (out / "config.json").exists() and not (out / JOURNAL).exists()
    for name, content in expected.items():
        try:
            there = (out / name).read_bytes()
        except FileNotFoundError:
            if complete:
                raise Wrong(f"the output looks complete, and {name} is absent") from None
            continue
        if there != content:
            raise Wrong(f"{name} has its name, and not its bytes")
    return complete


def require_that_check_sees(expected):
    """Plants faults and requires that check() finds them."""
    def planted(change):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            for name, content in expected.items():
                (out / name).write_bytes(content)
            change(out)
            try:
                return check(out, expected)
            except Wrong:
                return "seen"

    shard = next(name for name in expected if name.endswith(".safetensors"))
    half = expected[shard][:-1]
    assert planted(lambda out: None) is True
    assert planted(lambda out: (out / JOURNAL).touch()) is False
    assert planted(lambda out: (out / shard).unlink()) == "seen"
    assert planted(lambda out: (out / shard).write_bytes(half)) == "seen"
    assert planted(lambda out: ((out / shard).write_bytes(half), (out / JOURNAL).touch())) == "seen"


def require_that_layer_injects(arguments, model, folder, expected):
    """Each kind of fault, in every call that it fits: what one process makes of it."""
    for fault, code, says in (("kill", -9, ""), ("EIO", 1, "Input/output error"),
                              ("ESTALE", 1, "Stale file handle"), ("ENOSPC", 1, "No space left"),
                              ("short", 0, "")):
        out = folder / f"all-{fault}"
        environment = os.environ | {"LD_PRELOAD": str(arguments.layer), "FAULTY_FOLDER": str(out),
                                    "FAULTY_LOG": f"{out}.log", "FAULTY_ODDS": f"{fault}=1000"}
        run = subprocess.run([arguments.command, "quantize", str(model), str(out), "-q"], text=True,
                             env=environment, capture_output=True, check=False)
        assert run.returncode == code and says in run.stderr, (fault, run.returncode, run.stderr)
        assert Path(f"{out}.log").read_text().startswith(fault), fault
        assert code != 0 or contents(out) == expected, fault


class Watch(threading.Thread):
    """check(), over and over while ranks are at work."""

    def __init__(self, out, expected):
        super().__init__()
        self.out, self.expected = out, expected
        self.ended, self.wrong = threading.Event(), None

    def run(self):
        while self.wrong is None and not self.ended.wait(0.05):
            try:
                check(self.out, self.expected)
            except Wrong as wrong:
                self.wrong = wrong

    def end(self):
        self.ended.set()
        self.join()
        if self.wrong is not None:
            raise self.wrong


def profile(rng, kind):
    """Variables of the layer for one process."""
    seed = {"FAULTY_SEED": str(rng.randrange(1 << 30))}
    if kind == "local locks":  # with what shows the most: a second process, late, killed
        return seed | {"FAULTY_LOCKS": "local", "FAULTY_ODDS": f"kill={rng.choice((0, 4))}",
                       "FAULTY_DELAY_US": str(rng.choice((0, 200, 3000)))}
    odds = {fault: rng.choice((0, 0, 2, 6)) for fault in FAULTS}
    odds["short"] *= 30
    odds["ENOSPC"] *= 4  # for which fewer calls fit
    seed["FAULTY_ODDS"] = " ".join(f"{fault}={n}" for fault, n in odds.items())
    if rng.random() < 0.3:
        seed["FAULTY_DELAY_US"] = str(rng.choice((100, 2000)))
    if rng.random() < 0.3:
        seed["FAULTY_BYTES_PER_S"] = "2000000"
    if kind == "names":
        seed["FAULTY_NAMES_MS"] = str(rng.choice((20, 300)))
    return seed


class Round:
    def __init__(self, arguments, model, out, log, expected, number):
        self.arguments, self.out, self.log, self.expected = arguments, out, log, expected
        self.rng = random.Random(arguments.seed + number)
        self.kind = arguments.kind or KINDS[number % len(KINDS)]
        self.words = [arguments.command, "quantize", str(model), str(out), "--threads", "1", "-q",
                      "--ranks", str(arguments.ranks)]
        self.ends = collections.Counter()

    def start(self, rank, faults):
        environment = dict(os.environ)
        if faults:
            environment |= profile(self.rng, self.kind)
            environment |= {"LD_PRELOAD": str(self.arguments.layer), "FAULTY_FOLDER": str(self.out),
                            "FAULTY_LOG": str(self.log)}
        return rank, subprocess.Popen([*self.words, "--rank", str(rank)], env=environment,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def end(self, rank, process):
        """Returns whether that rank reported that it is done."""
        try:
            said = process.communicate(timeout=TIMEOUT)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise Wrong(f"rank {rank} did not end in {TIMEOUT} s") from None
        code = process.returncode
        self.ends["done" if code == 0 else "killed" if code == -9 else "error said"] += 1
        if code not in (0, -9) and not (code == 1 and "nvfp4: error: " in said):
            raise Wrong(f"rank {rank} ended with {code} and said: {said}")
        return code == 0

    def wave(self, ranks, faults):
        """Runs them, and gives back those that are not done."""
        twice = (0.8 if self.kind == "local locks" else 0.2) if faults else 0
        self.rng.shuffle(ranks)
        order = [rank for rank in ranks for _ in range(1 + (self.rng.random() < twice))]
        running, done, failed = collections.deque(), set(), set()
        watch = Watch(self.out, self.expected)
        watch.start()
        try:
            while order or running:
                while order and len(running) < AT_ONCE:
                    running.append(self.start(order.pop(), faults))
                rank, process = running.popleft()
                (done if self.end(rank, process) else failed).add(rank)
        finally:
            for _, process in running:
                process.kill()
                process.communicate()
            watch.end()
        check(self.out, self.expected)
        return [rank for rank in ranks if rank not in done - failed]  # a second process, too

    def run(self):
        left = list(range(self.arguments.ranks))
        for _ in range(3):
            left = self.wave(left, faults=True)
        left = self.wave(left, faults=False)
        if left:
            raise Wrong(f"ranks {left} do not end without faults")
        if contents(self.out) != self.expected and self.kind != "plain":
            # Each of the last two took the other for unfinished, or one that came late left its files.
            self.ends["run once more"] += 1
            self.wave([0], faults=False)
        there = contents(self.out)
        if there != self.expected:
            names = sorted(set(there) ^ set(self.expected))
            raise Wrong(f"not the files of one process: {names}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", type=Path)
    parser.add_argument("layer", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, whole, log = (Path(folder) / name for name in ("model", "whole", "log"))
        shards = str(arguments.shards or arguments.ranks)
        sample = ["sample", str(model), "--scale", "0.015625", "--layers", "12", "--shards", shards]
        for words in (sample, ["quantize", str(model), str(whole)]):
            subprocess.run([arguments.command, *words, "-q"], check=True)
        expected = contents(whole)
        require_that_check_sees(expected)
        require_that_layer_injects(arguments, model, Path(folder), expected)
        ends = collections.Counter()
        for number in range(arguments.rounds):
            one = Round(arguments, model, Path(folder) / f"out{number}", log, expected, number)
            begin = time.monotonic()
            try:
                one.run()
            except Wrong as wrong:
                names = "\n".join(sorted(set(contents(one.out)) - set(expected)))
                sys.exit(f"round {number}, {one.kind}, --seed {arguments.seed}: {wrong}\n{names}")
            print(f"round {number}, {one.kind}: {dict(one.ends)}, {time.monotonic() - begin:.1f} s")
            ends += one.ends
        faults = collections.Counter(line.split()[0] for line in log.read_text().splitlines())
        print(f"{arguments.ranks} ranks: {dict(ends)}; faults: {dict(faults)}")


if __name__ == "__main__":
    main()
