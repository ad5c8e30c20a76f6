"""The memory of a process, measured."""

import os
import subprocess
import sys

import pytest

#: A process that does what it is given first, and prints how much more private memory it had, at most, while it did
#: the rest.
MEASURED = """
import sys, threading
from pathlib import Path
import torch
import nvfp4.calibrate

def private():
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("RssAnon"))
    return int(line.split()[1]) * 1024

def watch():
    while not done.wait(0.001):
        most[0] = max(most[0], private())

exec(sys.argv[1])
before, most, done = private(), [0], threading.Event()
thread = threading.Thread(target=watch)
thread.start()
exec(sys.argv[2])
done.set()
thread.join()
print(most[0] - before)
"""
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"),
                                 reason="the private memory of a process is read as on Linux")


def most_memory(code, first=""):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NVFP4_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", MEASURED, first, code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
