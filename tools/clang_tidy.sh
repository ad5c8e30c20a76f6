#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy on the files that differ from a commit, or on all.
# usage: tools/clang_tidy.sh [COMMIT]
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
tools/setup.sh tools/packages_clang.txt
cmake --preset clang -DNVFP4_CUDA=OFF -DNVFP4_BENCH=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
if [[ $# -gt 0 ]]; then
  mapfile -t files < <(git diff --name-only --diff-filter=AM "$1" -- 'src/**.cc' 'cli/**.cc')
else
  mapfile -t files < <(git ls-files 'src/**.cc' 'cli/**.cc')
fi
# Kernels are compiled once for each instruction set, from one source that includes itself, and
# Windows' files with Windows' headers.
mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -v '^src/backends/\|^src/platform/windows/' || true)
[[ ${#files[@]} -gt 0 ]] || exit 0
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy-16 -p build/clang --quiet
echo "clang-tidy: ${#files[@]} files are clean"
