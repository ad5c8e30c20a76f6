#!/usr/bin/env bash
# From a clean clone to a quantized checkpoint: builds nvfp4, makes a small synthetic model,
# quantizes it and shows what that cost in accuracy. Everything lands in build/.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/build.sh release

nvfp4=build/release/nvfp4
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
