#!/usr/bin/env bash
# Distills a model in NVFP4 and measures it, for a row of docs/accuracy.md. Inputs of W4A4 layers are quantized by mse.
#
# usage: bench/lm/distilled.sh MODEL CALIBRATION VALIDATION UNSEEN FORM...     FORM: --w4a4 SHARE, or --scheme w4a16
#
# STEPS (320) and WINDOWS ("384 192") of the environment are those of examples/distill.py and measure.py.
set -euo pipefail
[[ $# -ge 6 ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd) model=$1
made=$(mktemp -d) && trap 'rm -rf "$made"' EXIT
python3 -m nvfp4 calibrate "$model" --text "$2" --out "$made/statistics" --keep-gram
python3 -m nvfp4 quantize "$model" "$made/gptq" --method gptq --statistics "$made/statistics" "${@:5}"
python3 "$root/examples/distill.py" "$model" "$made/gptq" "$made/distilled" --steps "${STEPS:-320}" \
  --windows 4096 --activations mse
python3 "$root/bench/lm/measure.py" --models "$model" --text "$3" --text "$4" --windows ${WINDOWS:-384 192} --methods max \
  --other gptq="$made/gptq" --other distilled="$made/distilled" --activations BF16 mse
