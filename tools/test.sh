#!/usr/bin/env bash
# Builds what changed and runs every test.
# usage: tools/test.sh [PRESET [CTEST ARGUMENT...]]    default: release
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
tools/build.sh "$preset"
exec ctest --preset "$preset" -j "$(nproc)" "${@:2}"
