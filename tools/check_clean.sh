#!/usr/bin/env bash
# Tries what tools/release.sh made on a fresh Debian 12 or Ubuntu 24.04: its base packages, no compiler, no network,
# nothing of this repository. The package, the archives and the wheel each quantize, verify and compare a model in
# less than a minute. As root; mmdebstrap makes the system once, in build/clean.
# usage: tools/check_clean.sh FOLDER [bookworm | noble KEYRING]    FOLDER: build/dist/VERSION
#   KEYRING   the keys of Ubuntu's archive: ubuntu-archive-keyring.gpg of its package ubuntu-keyring
set -euo pipefail
dist=$(cd "$1" && pwd) suite=${2:-bookworm} keyring=${3:+$(realpath "$3")}
cd "$(dirname "$0")/.."
die() {
  echo "check_clean: $*" >&2
  exit 1
}
case $suite in
  bookworm) version=3.11 wheel=cp311-cp311 source=() ;;
  noble)
    version=3.12 wheel=cp312-abi3 source=('deb http://archive.ubuntu.com/ubuntu noble main universe')
    [[ -f $keyring ]] || die "noble needs the file with the keys of Ubuntu's archive"
    ;;
  *) die "\"$suite\" is neither bookworm nor noble" ;;
esac
(($(id -u) == 0)) || die "only root can change the root folder"
command -v mmdebstrap >/dev/null || tools/setup.sh tools/packages_clean.txt

# Python is no part of the base; the wheel's check installs what it needs of it, with the network of here.
base=build/clean/$suite.tar python=build/clean/$suite-python.tar
mkdir -p build/clean
system() {
  [[ -e $1 ]] || { mmdebstrap -q --variant=minbase ${keyring:+--keyring="$keyring"} "${@:2}" "$suite" build/clean/new.tar \
    "${source[@]}" && mv build/clean/new.tar "$1"; }
}
# Ubuntu does not count apt among what is required; it brings libstdc++, which NumPy needs.
system "$base" --include=apt
system "$python" --include=apt,python3-venv

# try NAME SYSTEM SCRIPT: runs a script in a copy of the system, with the release in /dist.
try() {
  local name=$1 root
  root=$(mktemp -d build/clean/root.XXXXXX)
  tar -C "$root" --exclude='./dev/*' -xf "$2"
  mkdir "$root/dist"
  cp "$dist"/* "$root/dist/"
  [[ ! -d build/clean/wheels ]] || cp build/clean/wheels/* "$root/dist/"
  cat >"$root/try.sh" <<SCRIPT
set -eu
$3
cd /root
nvfp4 sample model --quiet
nvfp4 quantize model model-nvfp4 --quiet
nvfp4 verify model-nvfp4 --source model >/dev/null
nvfp4 compare model model-nvfp4 | tail -n 5
SCRIPT
  SECONDS=0
  unshare --mount --net --pid --fork --mount-proc="$PWD/$root/proc" \
    chroot "$root" env -i HOME=/root PATH=/usr/bin:/bin:/usr/sbin:/sbin sh /try.sh || die "$name failed"
  local took=$SECONDS
  rm -rf "$root"
  ((took < 60)) || die "$name took $took s, a minute is allowed"
  echo "check_clean: $name: installed, a model quantized, verified and compared in $took s"
}

try package "$base" 'dpkg --install /dist/nvfp4_*_amd64.deb >/dev/null'
try archive "$base" 'tar -C /usr/local --strip-components=1 --no-same-owner -xzf /dist/nvfp4-*-x86_64-linux.tar.gz; PATH=/usr/local/bin:$PATH'
if ls "$dist"/*-cuda.tar.gz >/dev/null 2>&1; then
  try 'archive with CUDA' "$base" 'tar -C /usr/local --strip-components=1 --no-same-owner -xzf /dist/nvfp4-*-cuda.tar.gz; PATH=/usr/local/bin:$PATH'
fi
if ls "$dist"/*-"$wheel"-*.whl >/dev/null 2>&1; then
  # NumPy, which the package needs, as pip would fetch it.
  rm -rf build/clean/wheels
  python3 -m pip download -q --disable-pip-version-check --only-binary :all: --python-version "$version" \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 -d build/clean/wheels numpy
  try wheel "$python" 'python3 -m venv /venv
/venv/bin/pip install -q --no-index --find-links /dist nvfp4
PATH=/venv/bin:$PATH
python3 -c "import nvfp4, numpy as np; q = nvfp4.quantize(np.ones((16, 64), np.float32)); print(nvfp4.gemm(np.ones((2, 64), np.float32), nvfp4.pack_weights(q), out_dtype=\"float32\")[0, 0])"'
fi
