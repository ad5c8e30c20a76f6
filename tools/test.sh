#!/usr/bin/env bash
# Builds what changed and runs tests.
# usage: tools/test.sh [--preset PRESET] [all | FILTER]
#   (nothing)  every test but those labelled slow; no CUDA
#   FILTER     the tests whose name matches this regular expression, slow ones too; test_NAME.py runs that file of
#              tests/python alone
#   all        every test; CUDA for Hopper, benchmarks, examples and fuzz targets are compiled too
# PRESET is one of CMakePresets.json; default: test, and test-all with all.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=
if [[ ${1:-} == --preset ]]; then
  preset=${2:?--preset needs a name}
  shift 2
fi
what=${1:-}
case $what in
  all) preset=${preset:-test-all} selection=() ;;
  '') preset=${preset:-test} selection=(-LE slow) ;;
  *) preset=${preset:-test} selection=(-R "$what") ;;
esac

times=()
# Runs a command and notes how long it took.
timed() {
  local name=$1 start=$SECONDS
  shift
  "$@"
  times+=("$(printf '  %-14s %5d s' "$name" $((SECONDS - start)))")
}

packages() {
  tools/setup.sh
  if [[ $preset == clang ]]; then tools/setup.sh tools/packages_clang.txt; fi
  tools/python_env.sh
  tools/engines_env.sh
  command -v chromium-headless-shell chromium google-chrome >/dev/null ||
    tools/setup.sh tools/packages_browser.txt || echo "no browser: its test is skipped" >&2
}

build() {
  local python=OFF
  case $preset in
    test | test-all | release) if build/venv/bin/python -c 'import nanobind' 2>/dev/null; then python=ON; fi ;;
  esac
  cmake --preset "$preset" -DNVFP4_PYTHON=$python -DPython_EXECUTABLE="$PWD/build/venv/bin/python"
  cmake --build --preset "$preset"
}

# Runs ctest with its files in memory, where there is room: on a disk most of the time of many tests is fsync.
run_tests() {
  if [[ -z ${TMPDIR:-} ]] && awk '$2 == "/dev/shm" && $3 == "tmpfs" && $4 !~ /noexec/ {found = 1} END {exit !found}' \
    /proc/mounts 2>/dev/null && awk '/^MemAvailable:/ {exit $2 < 10000000}' /proc/meminfo &&
    [[ $(df --output=avail -B1M /dev/shm | tail -n 1) -ge 6000 ]]; then
    export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/torchinductor_$(id -un)}
    TMPDIR=$(mktemp -d /dev/shm/nvfp4-tests.XXXXXX)
    export TMPDIR
    chmod 711 "$TMPDIR"  # a test of permissions runs as another user
    trap 'rm -rf "$TMPDIR"' EXIT
  fi
  if [[ $what == test_*.py ]]; then
    NVFP4_COMMAND=$PWD/build/$preset/nvfp4 PYTHONPATH=$PWD/build/$preset/python \
      build/venv/bin/python -m pytest -q -p no:cacheprovider "tests/python/$what" || status=$?
    return
  fi
  local results=$PWD/build/$preset/tests.xml
  ctest --preset "$preset" -j "$(nproc)" --output-junit "$results" "${selection[@]}" || status=$?
  tools/skip_reasons.py "$results"
}

status=0
timed packages packages
timed build build
if [[ $what == all ]]; then timed fuzz tools/fuzz.sh 20; fi
timed tests run_tests
printf '\nTime of each part:\n'
printf '%s\n' "${times[@]}"
exit "$status"
