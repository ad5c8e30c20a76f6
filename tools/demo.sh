#!/usr/bin/env bash
# From a clean clone to a quantized checkpoint: builds the nvfp4 command for this machine, makes a
# small synthetic model, quantizes it and shows what that cost in accuracy. Everything lands in
# build/. tools/test.sh builds the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] && command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
SECONDS=0
tools/build.sh command
printf '\nbuilt in %s s\n' "$SECONDS"

nvfp4=build/command/nvfp4
demo=build/demo
rm -rf "$demo"
mkdir -p "$demo"

run() {
  printf '\n$ %s\n' "$*"
  "$@"
}
run "$nvfp4" sample "$demo/model" --layers 16 --scale 0.25 --shards 2
run "$nvfp4" quantize "$demo/model" "$demo/model-nvfp4"
run "$nvfp4" compare "$demo/model" "$demo/model-nvfp4"
