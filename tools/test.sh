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
# Thousands of small files are written and synced: on a disk that takes most of the time of many tests. Where memory has
# room for them, and programs in it may run, they go there.
if [[ -z ${TMPDIR:-} ]] && awk '$2 == "/dev/shm" && $3 == "tmpfs" && $4 !~ /noexec/ {found = 1} END {exit !found}' \
  /proc/mounts 2>/dev/null && awk '/^MemAvailable:/ {exit $2 < 10000000}' /proc/meminfo &&
  [[ $(df --output=avail -B1M /dev/shm | tail -n 1) -ge 6000 ]]; then
  export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/torchinductor_$(id -un)}  # of other runs, too
  TMPDIR=$(mktemp -d /dev/shm/nvfp4-tests.XXXXXX)
  export TMPDIR
  chmod 711 "$TMPDIR"  # a test of permissions runs as another user
  trap 'rm -rf "$TMPDIR"' EXIT
fi
results=$PWD/build/$preset/tests.xml
status=0
ctest --preset "$preset" -j "$(nproc)" --output-junit "$results" "${@:2}" || status=$?
tools/skip_reasons.py "$results"
exit "$status"
