#!/usr/bin/env bash
# Fuzzes the parsers of untrusted files for some seconds, starting from the corpus in the tree.
# Findings land in build/fuzz; copy them to tests/fuzz/corpus to make them tests.
# usage: tools/fuzz.sh [SECONDS]    default: 600
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
tools/setup.sh tools/packages_clang.txt
cmake --preset fuzz -DNVFP4_CUDA=OFF
cmake --build --preset fuzz --target fuzz_safetensors fuzz_gguf
for target in build/fuzz/tests/fuzz/fuzz_*; do
  [ -x "$target" ] || continue
  name=$(basename "$target")
  mkdir -p "build/fuzz/corpus/$name"
  "$target" -max_total_time="${1:-600}" -artifact_prefix="build/fuzz/$name-" -print_final_stats=1 \
    -rss_limit_mb=256 \
    "build/fuzz/corpus/$name" "tests/fuzz/corpus/${name#fuzz_}"
done
