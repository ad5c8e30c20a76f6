#!/usr/bin/env bash
# Installs what is missing, then configures and builds a preset into build/<preset>.
# usage: tools/build.sh [PRESET]    default: release
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
tools/setup.sh
case $preset in clang | fuzz) tools/setup.sh tools/packages_clang.txt ;; esac
cmake --preset "$preset"
cmake --build --preset "$preset"
