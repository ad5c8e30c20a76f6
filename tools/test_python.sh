#!/usr/bin/env bash
# Builds the Python package below build/python and runs its tests with pytest. What pip installs goes
# into build/venv, with the versions that pyproject.toml pins. Tests of frameworks that are not
# installed there (PyTorch, JAX) are skipped, with the reason.
# usage: tools/test_python.sh [PACKAGE...]    more packages for build/venv: torch, jax
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
[[ -d build/venv ]] || python3 -m venv build/venv
python=$PWD/build/venv/bin/python
pinned=$(sed -n 's/^requires = \[.*"\(nanobind==[^"]*\)".*/\1/p' pyproject.toml)
"$python" -m pip install -q "$pinned" numpy ml_dtypes pytest "$@"
cmake -S . -B build/python -G Ninja -DNVFP4_PYTHON=ON -DNVFP4_BENCH=OFF -DNVFP4_EXAMPLES=OFF \
  -DPython_EXECUTABLE="$python"
cmake --build build/python --target nvfp4_python_stub nvfp4_cli
PYTHONPATH=build/python/python "$python" -m pytest -q -rs tests/python
