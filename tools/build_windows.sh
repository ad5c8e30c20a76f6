#!/usr/bin/env bash
# Cross-compiles the nvfp4 command for Windows on x86-64, with mingw-w64 and without DLLs of its own:
# build/windows/nvfp4.exe, and the tests of src/platform beside it.
# usage: tools/build_windows.sh
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
tools/setup.sh tools/packages_windows.txt
export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
libraries=$PWD/build/windows-libraries
tools/windows_libraries.sh "$libraries"
cmake -S . -B build/windows -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE=cmake/mingw.cmake \
  -DNVFP4_SYSROOT="$libraries" -DNVFP4_CUDA=OFF -DNVFP4_TESTS=OFF -DNVFP4_BENCH=OFF \
  -DNVFP4_EXAMPLES=OFF -DNVFP4_INSTALL=OFF
cmake --build build/windows --target nvfp4_cli nvfp4_platform_tests
