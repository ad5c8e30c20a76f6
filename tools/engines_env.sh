#!/usr/bin/env bash
# Makes build/venv-vllm, in which tests/python/test_vllm.py runs vLLM on a CPU: engines want versions of
# PyTorch and transformers that exclude those of build/venv. About 0.6 GB are downloaded, 2.5 GB installed.
# Our own package is not installed there: the test shows the engine the one that is tested.
# Where packages cannot be had, or with NVFP4_ENGINES=0, the test is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$PWD/build/venv-vllm
requirements=tests/python/requirements_vllm.txt

if [[ ${NVFP4_ENGINES:-1} == 0 ]] || cmp -s "$requirements" "$venv/installed.txt"; then
  exit 0
fi
rm -rf "$venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_RETRIES=${PIP_RETRIES:-2}
# No more than what is listed, so that nothing for GPUs comes along.
install() { "$venv/bin/python" -m pip install -q --no-deps -r "$requirements" "$@"; }
if python3 -m venv "$venv" &&
  { install || install --extra-index-url https://download.pytorch.org/whl/cpu; }; then
  cp "$requirements" "$venv/installed.txt"
else
  echo "engines_env: vLLM cannot be had here: its test is skipped" >&2
  rm -rf "$venv"
fi
