#!/usr/bin/env bash
# Makes the API reference from the public headers and the docs: build/api/html/index.html
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh tools/packages_docs.txt
mkdir -p build/api
version=$(sed -n 's/^project(nvfp4 VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
{
  cat docs/Doxyfile
  echo "PROJECT_NUMBER = $version"
  echo "OUTPUT_DIRECTORY = build/api"
} | doxygen -
echo "build/api/html/index.html"
