#!/usr/bin/env bash
# Makes build/venv for the Python tests: the packages of tests/python/requirements.txt. Where packages cannot be
# had, the script says so and goes on: their tests are skipped.
# The package under test is not installed: the tests use the one in the build folder.
# usage: tools/python_env.sh [PACKAGE...]    more packages: jax
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$PWD/build/venv
requirements=tests/python/requirements.txt

say() { echo "python_env: $*" >&2; }
# Without a network it should not take long to find out.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_RETRIES=${PIP_RETRIES:-2}
pip() { "$venv/bin/python" -m pip "$@"; }

python3 - <<'CHECK' || tools/setup.sh tools/packages_python.txt || true
import ensurepip, pathlib, sysconfig, venv
assert pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()
CHECK
if [[ ! -x $venv/bin/python ]] && ! python3 -m venv "$venv"; then
  say "no virtual environment can be made: the Python tests are skipped"
  rm -rf "$venv"
  exit 0
fi

# Installs exactly what pip is given, from where pip looks, or from PyTorch's own index.
install() {
  pip install -q "$@" || pip install -q --extra-index-url https://download.pytorch.org/whl/cpu "$@"
}

if ! cmp -s "$requirements" "$venv/installed.txt"; then
  if install -r "$requirements"; then
    cp "$requirements" "$venv/installed.txt"
  else
    say "not all packages can be had; trying them one by one"
    missing=()
    while read -r name; do
      pip install -q --no-deps "$name" || missing+=("$name")
      # Without the first of them nothing can be had.
      [[ ${missing[0]:-} != numpy* ]] || break
    done < <(sed 's/ *#.*//; /^$/d' "$requirements")
    say "not installed, their tests are skipped: ${missing[*]}"
  fi
fi
[[ $# -eq 0 ]] || install "$@"
