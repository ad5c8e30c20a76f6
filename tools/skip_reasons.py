#!/usr/bin/env python3
"""Lists the skipped tests of a ctest run with their reasons, which ctest's summary leaves out.

usage: skip_reasons.py RESULTS.xml    (from ctest --output-junit); prints nothing if none was skipped
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

# GoogleTest prints "file:line: Skipped" and then the reason; scripts print "skipped: reason".
REASON = re.compile(r"(?:: Skipped\n|^skipped: )(.+)", re.MULTILINE)


def skipped(results):
    """(test, reason) of each skipped test."""
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        if case.find("skipped") is not None and case.get("status") != "disabled":
            match = REASON.search(case.findtext("system-out") or "")
            yield case.get("name"), match.group(1) if match else "no reason given"


if __name__ == "__main__":
    tests = list(skipped(sys.argv[1]))
    if tests:
        print("\nSkipped, and why:")
    for test, reason in tests:
        print(f"  {test}: {reason}")
