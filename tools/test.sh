#!/usr/bin/env bash
# Builds what changed and runs every test.
# usage: tools/test.sh [PRESET [CTEST ARGUMENT...]]    default: release
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
tools/build.sh "$preset"
results=$PWD/build/$preset/tests.xml
status=0
ctest --preset "$preset" -j "$(nproc)" --output-junit "$results" "${@:2}" || status=$?
tools/skip_reasons.py "$results"
exit "$status"
