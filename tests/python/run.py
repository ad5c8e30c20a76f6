#!/usr/bin/env python3
"""Runs pytest for ctest. Exits with 77 and says why where pytest or NumPy is missing, or where every test was skipped.

usage: run.py MARKS FILE...    MARKS as for pytest -m: "slow", "not slow"
"""

import sys

try:
    import numpy  # noqa: F401: the package needs it
    import pytest
    import nvfp4  # noqa: F401
except ImportError as missing:
    # A package that is there and does not load is no reason to skip.
    if missing.name not in ("numpy", "pytest"):
        raise
    print(f"skipped: the Python package {missing.name} is missing; tools/python_env.sh installs it")
    sys.exit(77)


class Outcomes:
    """Counts what ran, so that a group without a test that ran is no success."""

    def __init__(self):
        self.ran, self.reasons = 0, set()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and not report.skipped:
            self.ran += 1
        if report.skipped:
            self.reasons.add(report.longrepr[2].removeprefix("Skipped: "))

    def pytest_collectreport(self, report):
        if report.skipped:  # the whole file, where it imports something
            self.reasons.add(report.longrepr[2].removeprefix("Skipped: "))


outcomes = Outcomes()
status = pytest.main(["-q", "-p", "no:cacheprovider", "--durations=12", "-m", *sys.argv[1:]], plugins=[outcomes])
if status in (0, 5) and outcomes.ran == 0:  # 5: nothing was collected
    print(f"skipped: {'; '.join(sorted(outcomes.reasons))}")
    status = 77
sys.exit(status)
