#!/usr/bin/env bash
# Makes build/venv-vllm or build/venv-sglang, in which tests/python/test_vllm.py and test_sglang.py run:
# engines want versions of PyTorch and transformers that exclude those of build/venv. vLLM's package for CPUs
# and what it needs: 0.6 GB to download, 2.5 GB installed; SGLang: 1.2 GB more. Our own package is not
# installed there: the tests show the engine the one that is tested. Where packages cannot be had, or with
# NVFP4_ENGINES=0, the test is skipped.
# usage: tools/engines_env.sh [vllm|sglang]    default: vllm, which tools/test.sh makes
set -euo pipefail
cd "$(dirname "$0")/.."
engine=${1:-vllm}
venv=$PWD/build/venv-$engine
requirements=tests/python/requirements_$engine.txt
wanted=$(cat "$requirements" tests/python/requirements_vllm.txt)

if [[ ${NVFP4_ENGINES:-1} == 0 || $wanted == "$(cat "$venv/installed.txt" 2>/dev/null)" ]]; then
  exit 0
fi
rm -rf "$venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_RETRIES=${PIP_RETRIES:-2}
# No more than what is listed, so that nothing for GPUs comes along.
install() { "$venv/bin/python" -m pip install -q --no-deps -r "$requirements" "$@"; }
if python3 -m venv "$venv" &&
  { install || install --extra-index-url https://download.pytorch.org/whl/cpu; }; then
  echo "$wanted" >"$venv/installed.txt"
else
  echo "engines_env: $engine cannot be had here: its test is skipped" >&2
  rm -rf "$venv"
fi
