#!/usr/bin/env bash
# Makes the documentation as pages that need no server: build/site/index.html
# It documents the Python package that tools/test.sh built.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=${PYTHONPATH:-$PWD/build/test/python}
tools/setup.sh tools/packages_docs.txt
python=build/venv-docs/bin/python
[[ -x $python ]] || python3 -m venv build/venv-docs
$python -m pip install -q -r tools/requirements_docs.txt
rm -rf build/site build/site-cpp
mkdir -p build/site-cpp
doxygen docs/Doxyfile
$python -m sphinx -q -W --keep-going -d build/site-doctrees -c docs . build/site
cp build/site/README.html build/site/index.html
echo build/site/index.html
