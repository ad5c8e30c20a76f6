#!/usr/bin/env bash
# Builds a peer's program for bench/cpu_gemm.py --peer. No part of the project's build.
#
# usage: bench/peers/build.sh CHECKOUT PROGRAM
#
# CHECKOUT  a folder with the sources of ggml or ik_llama.cpp, or "onednn" for the installed library
#           (version 2; Debian 12: libdnnl-dev)
# PROGRAM   the file to make; a library that is built first goes to PROGRAM.build
set -euo pipefail
[[ $# == 2 ]] || { sed -n 's/^# \{0,1\}//; 3,8p' "$0" >&2; exit 2; }
checkout=$1 program=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$program")"
compile=("${CXX:-c++}" -std=c++20 -O2 -march=native -fopenmp -Wall -Wextra -Werror)

if [[ $checkout == onednn ]]; then
  "${compile[@]}" "$here/onednn_gemm.cc" -ldnnl -o "$program"
  exit
fi

# g++ 12 drops stores that only AMX instructions read; ggml's products then crash or are wrong.
flags=()
amx=$(find "$checkout" -path '*/ggml-cpu/amx/mmq.cpp' -print -quit)
if [[ -n $amx ]] && "${CXX:-c++}" --version | grep -q 'Free Software Foundation'; then
  flags=("-DCMAKE_CXX_FLAGS=-fno-tree-dse -fno-dse")
fi
# The tools around the libraries, and most kinds of attention, have no part in a product and take long
# to compile; without any attention ik_llama.cpp does not link.
cmake -S "$checkout" -B "$program.build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
  -DGGML_NATIVE=ON -DGGML_OPENMP=ON -DGGML_LLAMAFILE=ON -DGGML_IQK_FA_ALL_QUANTS=OFF \
  -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
  "${flags[@]}" --no-warn-unused-cli
cmake --build "$program.build" --target ggml --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
headers=$checkout/include
[[ -f $headers/ggml.h ]] || headers=$checkout/ggml/include
# A group, as the libraries need one another in an order that differs between versions.
mapfile -t libraries < <(find "$program.build" -name 'libggml*.a')
"${compile[@]}" -isystem "$headers" "$here/ggml_gemm.cc" \
  -Wl,--start-group "${libraries[@]}" -Wl,--end-group -ldl -pthread -o "$program"
