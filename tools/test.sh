#!/usr/bin/env bash
# Builds what changed and runs every test, those of the Python package and of the programs that read
# what we write included.
# usage: tools/test.sh [PRESET [CTEST ARGUMENT...]]    default: release
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
tools/setup.sh
tools/python_env.sh
tools/engines_env.sh
if ! command -v chromium-headless-shell chromium google-chrome >/dev/null; then
  tools/setup.sh tools/packages_browser.txt || echo "no browser: its test is skipped" >&2
fi
tools/build.sh "$preset"
results=$PWD/build/$preset/tests.xml
status=0
ctest --preset "$preset" -j "$(nproc)" --output-junit "$results" "${@:2}" || status=$?
tools/skip_reasons.py "$results"
exit "$status"
