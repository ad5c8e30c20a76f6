#!/usr/bin/env bash
# Installs the Python package into build/venv and runs its tests, and no others. Tests of what is not
# installed there are skipped, with the reason.
# usage: tools/test_python.sh [PACKAGE...]    more packages for build/venv: jax
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
tools/python_env.sh "$@"
build/venv/bin/python -m pytest -q -rs tests/python
