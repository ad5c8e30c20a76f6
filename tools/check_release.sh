#!/usr/bin/env bash
# Tries what tools/release.sh made: sums, sizes, what each needs of a system; then a sample model is
# quantized, verified and compared with each artefact, from a fresh folder and without this
# repository's files. ARM's commands and wheels run in qemu. The archive with CUDA runs on the CPU and,
# where there is one, on a GPU.
# usage: tools/check_release.sh FOLDER
set -euo pipefail
dist=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
die() {
  echo "check_release: $*" >&2
  exit 1
}

(cd "$dist" && sha256sum --quiet -c SHA256SUMS) || die "a sum of SHA256SUMS differs"
[[ $(find "$dist" -mindepth 1 -maxdepth 1 ! -name SHA256SUMS | wc -l) == $(wc -l <"$dist/SHA256SUMS") ]] || die "a file has no sum"

check_size() {
  size=$(stat -c %s "$1")
  ((size <= 15000000)) || die "$1 has $size bytes, more than 15 MB"
}

# A static command, of at most 15 MB, which says that it runs on CPUs alone. The words after it run it.
try_command() {
  local command=$1 size
  shift
  check_size "$command"
  ! readelf -d "$command" | grep -q NEEDED || die "$command needs shared libraries"
  ! readelf -lW "$command" | grep -q INTERP || die "$command needs a loader"
  ! readelf -SW "$command" | grep -q '\.symtab' || die "$command is not stripped"
  [[ $(env -i "$@" "$command" --version --verbose) == *"CUDA: not in this build"* ]] || die "$command says nothing of CUDA"
  try_model "$@" "$command"
  echo "check_release: $command: static, $size bytes, a model quantized, verified and compared"
}

# old_glibc FILE: the highest version of glibc that it asks for, which may be 2.28.
old_glibc() {
  local highest
  highest=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  [[ $(printf '%s\nGLIBC_2.28\n' "$highest" | sort -V | tail -n 1) == GLIBC_2.28 ]] || die "$1 needs $highest"
  echo "${highest#GLIBC_}"
}

# A command with CUDA, of at most 40 MB: it needs glibc alone, of 2.28 or newer.
try_cuda_command() {
  local command=$1 size others glibc gpu='no GPU here'
  size=$(stat -c %s "$command")
  ((size <= 40000000)) || die "$command has $size bytes, more than 40 MB"
  ! readelf -SW "$command" | grep -q '\.symtab' || die "$command is not stripped"
  others=$(readelf -d "$command" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so\.[0-9]+$' || true)
  [[ -z $others ]] || die "$command needs $others"
  glibc=$(old_glibc "$command")
  [[ $(env -i "$command" --version --verbose) != *"CUDA: not in this build"* ]] || die "$command has no CUDA"
  try_model "$command"
  if nvidia-smi -L >/dev/null 2>&1; then
    rm -rf model-cuda
    env -i HOME="$place" "$command" quantize model model-cuda --quiet --device cuda
    (cd model-cuda && sha256sum --quiet -c ../first.txt) || die "$command quantizes to other bytes on the GPU"
    gpu='on the GPU too'
  fi
  echo "check_release: $command: $size bytes, glibc up to $glibc, a model quantized, verified and compared; $gpu"
}

# Quantizes, verifies and compares a sample model; same bytes from all of them.
try_model() {
  rm -rf model model-nvfp4
  env -i HOME="$place" "$@" sample model --quiet
  env -i HOME="$place" "$@" quantize model model-nvfp4 --quiet
  env -i HOME="$place" "$@" verify model-nvfp4 --source model >/dev/null
  env -i HOME="$place" "$@" compare model model-nvfp4 >compared.txt
  [[ -s compared.txt ]] || die "$1: compare printed nothing"
  (cd model-nvfp4 && sha256sum *.safetensors) >sums.txt
  [[ -e first.txt ]] || cp sums.txt first.txt
  cmp -s first.txt sums.txt || die "$1 quantizes the model to other bytes than the first artefact"
}

for archive in "$dist"/*.tar.gz; do
  [[ -e $archive ]] || continue
  rm -rf archive
  mkdir archive
  tar -C archive -xzf "$archive"
  root=$(echo archive/*)
  case $root in
    *-x86_64-linux-cuda) try_cuda_command "$place/$root/bin/nvfp4" ;;
    *-aarch64-linux) try_command "$place/$root/bin/nvfp4" "$(command -v qemu-aarch64)" ;;
    *) try_command "$place/$root/bin/nvfp4" ;;
  esac
  for file in man/man1/nvfp4.1 man/man1/nvfp4-quantize.1 bash-completion/completions/nvfp4 \
    zsh/site-functions/_nvfp4 fish/vendor_completions.d/nvfp4.fish doc/nvfp4/LICENSE; do
    [[ -s $root/share/$file ]] || die "$(basename "$archive") has no share/$file"
  done
done

for package in "$dist"/*.deb; do
  [[ -e $package ]] || continue
  if command -v lintian >/dev/null; then
    lintian --no-cfg --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$package" ||
      die "lintian objects to $(basename "$package")"
  else
    echo "check_release: lintian is not installed: the package was not checked by it"
  fi
  [[ -z $(dpkg-deb -f "$package" Depends) ]] || die "$(basename "$package") depends on other packages"
  dpkg-deb -x "$package" package
  try_command "$place/package/usr/bin/nvfp4"
done

for archive in "$dist"/*-windows.zip; do
  [[ -e $archive ]] || continue
  wine=$(command -v wine64 || echo /usr/lib/wine/wine64)
  [[ -x $wine ]] || die "Wine is not here to try $(basename "$archive")"
  rm -rf windows
  python3 -m zipfile -e "$archive" windows
  command=$(echo "$place"/windows/*/nvfp4.exe)
  size=$(stat -c %s "$command")
  ((size <= 15000000)) || die "nvfp4.exe has $size bytes, more than 15 MB"
  try_model WINEDEBUG=-all "$wine" "$command"
  echo "check_release: nvfp4.exe: $size bytes; in Wine, a model quantized, verified and compared"
done

for list in "$dist"/*.spdx.json; do
  python3 - "$list" "$dist" <<'LIST'
import hashlib, json, pathlib, sys
document = json.load(open(sys.argv[1]))
assert document["spdxVersion"] == "SPDX-2.3"
assert all(package["versionInfo"] for package in document["packages"])
listed = {f["fileName"]: f["checksums"][0]["checksumValue"] for f in document["files"]}
folder = pathlib.Path(sys.argv[2])
others = ["SHA256SUMS", pathlib.Path(sys.argv[1]).name]
found = {f"./{f.name}": hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir() if f.name not in others}
assert listed == found, (listed, found)
LIST
done

# Reads what the extension module of a wheel asks of a system: symbols of glibc up to 2.28 and those of
# Python; whatever else it wants would be missing when it is loaded.
check_symbols() {
  local module=$1 glibc missing
  glibc=$(old_glibc "$module")
  missing=$(objdump -T "$module" | awk '/\*UND\*/ && !/GLIBC_/ && $1 != "" { if ($2 != "w") print $NF }' |
    grep -vE '^_?Py' || true)
  [[ -z $missing ]] || die "$module needs symbols that nothing has: $missing"
  echo "check_release: $(basename "$module"): glibc up to $glibc"
}

# old_system WHEEL MACHINE: auditwheel finds it fit for manylinux_2_28. It also prints the name of the file, which says
# so whatever is in it: the tag found counts.
old_system() {
  local tag
  tag=$(venv/bin/auditwheel show "$1" | tr -s '[:space:]' ' ' | sed -nE 's/.* platform tag: "([^"]*)".*/\1/p')
  [[ $tag =~ ^manylinux_2_([5-9]|1[0-9]|2[0-8])_$2$ ]] ||
    die "auditwheel finds $(basename "$1") fit for \"$tag\", must be manylinux_2_28_$2 or older"
}

# try_arm_wheel WHEEL: in qemu, by Debian's Python for 64-bit ARM (tools/arm_python.sh): 3.11, and 3.13 for the stable
# ABI. pip of here installs it, which takes what is for that machine alone.
try_arm_wheel() {
  local wheel=$1 python=3.11 root
  [[ $wheel != *-cp312-abi3-* ]] || python=3.13
  "$here/arm_python.sh" "$here/../build/arm-python/$python" "$([[ $python == 3.11 ]] && echo bookworm || echo trixie)" "python$python"
  root=$(cd "$here/../build/arm-python/$python/root" && pwd)
  rm -rf venv site
  python3 -m venv venv
  venv/bin/python -m pip install -q --disable-pip-version-check auditwheel
  old_system "$wheel" aarch64
  venv/bin/python -m pip install -q --disable-pip-version-check --target site --only-binary :all: --implementation cp \
    --python-version "$python" --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
    --platform manylinux2014_aarch64 "$wheel"
  check_symbols "$(echo site/nvfp4/_core*.so)"
  try_model "$(command -v qemu-aarch64)" "$place/site/nvfp4/bin/nvfp4"
  env -i HOME="$place" PYTHONPATH="$place/site" "$(command -v qemu-aarch64)" -L "$root" "$root/usr/bin/python$python" \
    "$here/check_wheel.py"
  echo "check_release: $(basename "$wheel"): $(stat -c %s "$wheel") bytes; in qemu by Python $python, a model quantized, a product made"
}

for wheel in "$dist"/*.whl; do
  [[ -e $wheel ]] || continue
  (($(stat -c %s "$wheel") <= 40000000)) || die "$(basename "$wheel") is larger than 40 MB"
  if [[ $wheel == *_aarch64.whl ]]; then
    try_arm_wheel "$wheel"
    continue
  fi
  case $wheel in *-cp312-abi3-*) python=python3.12 ;; *-cp311-cp311-*) python=python3.11 ;; *) die "$wheel: which Python?" ;; esac
  "$python" --version >/dev/null 2>&1 || die "$python is not here to try $(basename "$wheel")"
  rm -rf venv
  "$python" -m venv venv
  venv/bin/python -m pip install -q --disable-pip-version-check auditwheel "$wheel"
  old_system "$wheel" x86_64
  check_symbols "$(echo venv/lib/python*/site-packages/nvfp4/_core*.so)"
  if ls "$dist"/*-cuda.tar.gz >/dev/null 2>&1; then
    [[ $(env -i venv/bin/nvfp4 --version --verbose) == *"CUDA "*" machine code for "* ]] || die "$wheel: its command has no CUDA"
    readelf -SW venv/lib/python*/site-packages/nvfp4/_core*.so | grep -q '\.nv_fatbin' || die "$wheel: its module has no CUDA"
  fi
  try_model "$place/venv/bin/nvfp4"
  env -i HOME="$place" venv/bin/python "$here/check_wheel.py"
  echo "check_release: $(basename "$wheel"): $(stat -c %s "$wheel") bytes, a model quantized, a product made"
done
