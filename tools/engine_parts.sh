#!/usr/bin/env bash
# Packs vLLM 0.26, the oldest that python/nvfp4/engines runs in, for a machine with Python 3.12, PyTorch 2.11 and transformers
# that reaches no package index. It leaves out what a Hopper GPU does not run.
# There: cat part.* | zstd -d --long=27 | tar x -C SITE, and SITE in PYTHONPATH; then bench/engines.py.
# usage: tools/engine_parts.sh OUT MIB...    writes OUT/part.1 … of at most so many MiB; the last size is of all further ones
set -euo pipefail
out=$(realpath -m "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
platforms=()
for glibc in 17 24 27 28 31 34 35; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
from=(--no-deps --only-binary=:all: --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none
      "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64)

python3 -m pip download -q "${from[@]}" -d "$work" vllm==0.26.0
mkdir "$work/site"
(cd "$work/site" && unzip -q ../vllm-*.whl -x '*/_vllm_fa2_C*' vllm/vllm-rs 'vllm/_rust_tool_parser*' 'vllm/third_party/fmha_sm100/*' \
  'vllm/third_party/deep_gemm/*')
# Versions that vLLM 0.26 imports with: newer openai wants httpx2, older apache-tvm-ffi is not enough for xgrammar.
python3 -m pip install -q "${from[@]}" --no-compile --target "$work/deps" \
  annotated-types==0.8.0 apache-tvm-ffi==0.1.15.post2 astor==0.8.1 blake3==1.0.11 cachetools==8.0.2 cbor2==6.3.0 \
  compressed-tensors==0.17.0 depyf==0.20.0 dill==0.4.1 distro==1.9.0 fastapi==0.136.3 httptools==0.9.0 httpx-sse==0.4.3 \
  humming-kernels==0.1.10 ijson==3.6.0 interegular==0.3.3 jiter==0.19.0 jmespath==1.1.0 jsonschema==4.26.0 \
  jsonschema-specifications==2025.9.1 lark==1.2.2 llguidance==1.7.6 lm-format-enforcer==0.11.3 loguru==0.7.3 mcp==2.3.0 \
  mistral-common==1.13.1 model-hosting-container-standards==0.1.16 msgspec==0.22.0 openai==2.45.0 openai-harmony==0.0.8 \
  opentelemetry-api==1.45.2 opentelemetry-sdk==1.45.2 opentelemetry-semantic-conventions==0.66b2 outlines-core==0.2.14 \
  partial-json-parser==0.2.1.1.post7 prometheus-fastapi-instrumentator==8.1.0 pybase64==1.5.1 pycountry==26.2.16 \
  pydantic==2.14.4 pydantic-core==2.50.5 pydantic-extra-types==2.11.1 pydantic-settings==2.16.3 pyelftools==0.33 \
  python-dotenv==1.2.4 python-json-logger==4.2.0 python-multipart==0.0.34 pyzmq==27.3.0 referencing==0.37.0 rpds-py==2026.9.1 \
  setproctitle==1.3.8 sniffio==1.3.1 sse-starlette==3.7.0 starlette==1.10.0 supervisor==4.3.0 typing-inspection==0.4.5 \
  uvicorn==0.54.0 watchfiles==1.3.0 websockets==17.4 xgrammar==0.2.8
rm -rf "$work/deps/bin" "$work/deps/mistral_common/data" "$work/deps/pycountry/locales"
find "$work/deps" -type d -name tests -prune -exec rm -rf {} +
cp -rn "$work/deps/." "$work/site"

tar cf "$work/all.tar" -C "$work/site" .
nice zstd -q -12 --long=27 "$work/all.tar" -o "$work/all.zst"
mkdir -p "$out"
rm -f "$out"/part.*
size=$(stat -c %s "$work/all.zst") at=0 number=1
while ((at < size)); do
  tail -c +$((at + 1)) "$work/all.zst" | head -c $(($1 << 20)) >"$out/part.$number" || [[ $? == 141 ]]
  at=$((at + ($1 << 20))) number=$((number + 1))
  if (($# > 1)); then shift; fi
done
ls -l "$out"
