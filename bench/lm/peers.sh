#!/usr/bin/env bash
# Makes the environments that peers.py runs in, one for each package: their requirements exclude each
# other. PyTorch is the build for CPUs. peers.py needs this project's package too: PYTHONPATH=python.
#
# usage: bench/lm/peers.sh FOLDER
#
#   FOLDER/modelopt/bin/python bench/lm/peers.py modelopt-mse MODEL OUT --calibration FILE
#   FOLDER/llmcompressor/bin/python bench/lm/peers.py llmcompressor-gptq MODEL OUT --calibration FILE
#   FOLDER/autoround/bin/python bench/lm/peers.py auto-round MODEL OUT --calibration FILE
set -euo pipefail
[[ $# == 1 ]] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

make() {
  python3 -m venv "$1"
  local pip=("$1/bin/python" -m pip install -q --disable-pip-version-check "${@:2}")
  "${pip[@]}" || "${pip[@]}" --extra-index-url https://download.pytorch.org/whl/cpu
}
make "$1/modelopt" torch==2.13.0+cpu transformers==5.23.0 nvidia-modelopt==0.47.0 requests==2.34.2 \
  accelerate==1.15.0 safetensors==0.8.0 numpy==2.4.6
make "$1/llmcompressor" torch==2.13.0+cpu transformers==5.17.0 llmcompressor==0.14.0.1 \
  compressed-tensors==0.19.0 accelerate==1.15.0 datasets==5.2.0 safetensors==0.8.0 numpy==2.4.6
make "$1/autoround" torch==2.13.0+cpu transformers==5.24.0 auto-round==0.16.1 datasets==5.2.0 accelerate==1.15.0 \
  safetensors==0.8.0 numpy==2.4.6
