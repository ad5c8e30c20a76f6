#!/usr/bin/env bash
# Formats every C++ file in place, with the one clang-format version that the checks use.
set -euo pipefail
cd "$(dirname "$0")/.."
find include src cli python tests bench examples \( -name '*.h' -o -name '*.cc' -o -name '*.cuh' -o -name '*.cu' \) \
  -exec clang-format-16 -i {} +
