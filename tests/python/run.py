#!/usr/bin/env python3
"""Runs pytest for ctest. Exits with 77 and says why where pytest or NumPy is missing, or where every
test of the file was skipped.

usage: run.py FILE...
"""

import sys

try:
    import numpy  # noqa: F401: the package needs it
    import pytest
except ImportError as missing:
    print(f"skipped: the Python package {missing.name} is missing")
    sys.exit(77)


class Outcomes:
    """Counts what ran, so that a file without a test that ran is no success."""

    def __init__(self):
        self.ran, self.reasons = 0, set()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and not report.skipped:
            self.ran += 1
        if report.skipped:
            self.reasons.add(report.longrepr[2].removeprefix("Skipped: "))


outcomes = Outcomes()
status = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[outcomes])
if status == 0 and outcomes.ran == 0:
    print(f"skipped: {'; '.join(sorted(outcomes.reasons))}")
    status = 77
sys.exit(status)
