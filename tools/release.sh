#!/usr/bin/env bash
# Makes what people download in build/dist/VERSION: for x86-64 Linux the command as an archive and as a Debian
# package, both for CPUs and without shared libraries, and wheels; with CUDA the command as an archive; for 64-bit
# ARM the command as an archive, and wheels; for Windows the command as a zip; a list of
# their parts (SPDX), checksums. Packing has fixed times, owners and order: the same build gives the same bytes.
# usage: tools/release.sh VERSION [--check] [--no-wheels] [--cuda] [--arm] [--only-arm] [--windows]
#   --check     also tries each of them; that for ARM in qemu
#   --cuda      also the archive with CUDA; the wheels for x86-64 have it too (nvcc: about 15 minutes of one core)
#   --arm       also for ARM (Debian's cross compiler)
#   --only-arm  nothing for x86-64
#   --windows   also for Windows, by mingw-w64
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
die() {
  echo "release: $*" >&2
  exit 1
}

version= check= wheels=yes x86=yes arm= windows= cuda=
for argument; do
  case $argument in
    --check) check=yes ;;
    --no-wheels) wheels= ;;
    --cuda) cuda=yes ;;
    --arm) arm=yes ;;
    --windows) windows=yes ;;
    --only-arm) x86= wheels= ;;
    [0-9]*) version=$argument ;;
    *) die "unknown argument \"$argument\"; usage: tools/release.sh VERSION [--check] [--no-wheels] [--cuda] [--arm] [--only-arm] [--windows]" ;;
  esac
done
[[ -n $x86$arm$windows ]] || die "--only-arm needs --arm or --windows"
[[ -n $x86 || -z $cuda ]] || die "--cuda is for x86-64, --only-arm is not"
stated=$(sed -n 's/^project(nvfp4 VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[[ $version == "$stated" ]] || die "VERSION is \"$version\", that of CMakeLists.txt is $stated"
[[ $(uname -m) == x86_64 ]] || die "this machine is $(uname -m); artefacts are made on x86_64"

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} TZ=UTC
# Names sort as bytes; LC_ALL would keep ccache from sharing objects with builds that have none.
unset LC_ALL
export LC_COLLATE=C
export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER:-ccache} CXX=${CXX:-c++}
for list in packages packages_python packages_release; do tools/setup.sh "tools/$list.txt"; done
libraries=$PWD/build/release-libraries
dist=build/dist/$version
rm -rf "$dist"
mkdir -p "$dist"

# build FOLDER LIBRARIES [OPTION...]: the command and nothing else.
build() {
  cmake --preset release -B "$1" -DNVFP4_STATIC="$2" -DNVFP4_CUDA=OFF -DNVFP4_TESTS=OFF \
    -DNVFP4_BENCH=OFF -DNVFP4_EXAMPLES=OFF -DNVFP4_PYTHON=OFF "${@:3}"
  cmake --build "$1"
}
# The files of an archive below a folder: the command, its pages and completions, licences. The command is stripped
# by the program that is named, if any.
stage() {
  local build=$1 folder=$2 strip=$3
  shift 3
  rm -rf "$folder"
  cmake --install "$build" --component command --prefix "$folder" >/dev/null
  [[ -z $strip ]] || "$strip" "$folder/bin/nvfp4"
  mkdir -p "$folder/share/doc/nvfp4"
  cp LICENSE CHANGELOG.md "$folder/share/doc/nvfp4/"
  # Whose code is linked in, with its terms.
  for package in libfmt-dev libhwy-dev libpcre2-dev libre2-dev libyaml-cpp-dev libeigen3-dev nlohmann-json3-dev \
    libcli11-dev libxxhash-dev "$@"; do
    cp -L "/usr/share/doc/$package/copyright" "$folder/share/doc/nvfp4/$package.copyright"
  done
}
# Times and owners of a folder, the same each time.
settle() {
  find "$1" -depth -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}
# pack NAME: the archive of build/dist/NAME.
pack() {
  settle "build/dist/$1"
  tar -C build/dist --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --format=ustar -c "$1" | gzip -9n >"$dist/$1.tar.gz"
  rm -r "build/dist/$1"
}

# release_python PYTHON: an environment in build/release-venv-PYTHON with what makes wheels.
release_python() {
  "$1" --version >/dev/null 2>&1 || die "$1 is not here, which builds a wheel; --no-wheels makes none"
  [[ -x build/release-venv-$1/bin/python ]] || "$1" -m venv "build/release-venv-$1"
  "build/release-venv-$1/bin/python" -m pip install -q --disable-pip-version-check -r tools/requirements_release.txt
}
# zig links for old versions of glibc.
zig_venv=build/release-venv-zig zig=$PWD/build/release-venv-zig/bin/python-zig
if [[ -n $cuda$wheels ]]; then
  [[ -x $zig_venv/bin/python ]] || python3 -m venv "$zig_venv"
  "$zig_venv/bin/python" -m pip install -q --disable-pip-version-check "$(grep '^ziglang==' tools/requirements_release.txt)"
fi
# CUDA's terms, from where its archives, its packages for Debian or those for Python have them.
cuda_terms() {
  local toolkit file
  toolkit=$(sed -n 's/^CUDA_cudart_static_LIBRARY:[A-Z]*=//p' build/release-cuda/CMakeCache.txt)
  toolkit=$(dirname "$(dirname "$toolkit")")
  toolkit=${toolkit%/targets/*}
  for file in "$toolkit"/EULA.txt /usr/share/doc/cuda-cudart-dev-*/copyright \
    "$toolkit"/dist-info/nvidia_cuda_runtime-*.dist-info/licenses/License.txt; do
    [[ ! -e $file ]] || { echo "$file" && return; }
  done
  die "the terms of CUDA's runtime, which is linked in, are not in $toolkit"
}

if [[ -n $x86 ]]; then
  tools/release_libraries.sh "$libraries"
  build build/release-static "$libraries"
  stage build/release-static "build/dist/nvfp4-$version-x86_64-linux" strip g++ libc6
  pack "nvfp4-$version-x86_64-linux"

  deb=build/dist/deb
  stage build/release-static "$deb/usr" strip g++ libc6
  tools/debian_files.sh "$deb" "$version" amd64
  settle "$deb"
  # dpkg-deb takes its times from SOURCE_DATE_EPOCH.
  dpkg-deb --root-owner-group -Zxz --build "$deb" "$dist/nvfp4_${version}_amd64.deb" >/dev/null
  rm -r "$deb"
fi

if [[ -n $cuda ]]; then
  build build/release-cuda "$libraries" -DNVFP4_CUDA=ON "-DNVFP4_ZIG=$zig"
  name=nvfp4-$version-x86_64-linux-cuda
  stage build/release-cuda "build/dist/$name" '' g++
  terms=$(cuda_terms)
  cp -L "$terms" "build/dist/$name/share/doc/nvfp4/cuda-cudart.copyright"
  pack "$name"
fi

if [[ -n $arm ]]; then
  tools/setup.sh tools/packages_arm.txt
  CXX=aarch64-linux-gnu-g++ CC=aarch64-linux-gnu-gcc tools/release_libraries.sh "$libraries-aarch64-linux" cross
  build build/release-aarch64-linux "$libraries-aarch64-linux" -DCMAKE_TOOLCHAIN_FILE=cmake/cross.cmake -DNVFP4_UNITY=ON
  stage build/release-aarch64-linux "build/dist/nvfp4-$version-aarch64-linux" aarch64-linux-gnu-strip g++ libc6
  pack "nvfp4-$version-aarch64-linux"
fi

# A wheel for Python 3.11 and one for 3.12 and newer, where the stable ABI has what nanobind uses. Each
# has a build folder, for CMake keeps the Python it found; ccache compiles the library once.
wheel() {
  local python=$1 venv=build/release-venv-$1 made=build/dist/wheel
  release_python "$python"
  rm -rf "$made"
  "$venv/bin/python" -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w "$made" \
    -C "build-dir=build/release-$python${cuda:+-cuda}" -C "cmake.define.NVFP4_CUDA=$([[ -n $cuda ]] && echo ON || echo OFF)" \
    -C "cmake.define.NVFP4_STATIC=$libraries" -C "cmake.define.NVFP4_ZIG=$zig" \
    -C cmake.define.NVFP4_WERROR=ON .
  PATH=$PWD/$venv/bin:$PATH auditwheel repair -w "$dist" --plat manylinux_2_28_x86_64 "$made"/*.whl
  rm -r "$made"
}
# arm_wheel PYTHON TAGS HEADERS: the wheel for 64-bit ARM, from that for x86-64: a module and a command take the place
# of those there. The library is compiled already. CMake 3.25 knows no stable ABI; what pip builds with brings what does.
arm_wheel() {
  local venv=$PWD/build/release-venv-$1 folder=build/release-aarch64-linux
  rm -rf "$folder/python"
  build "$folder" "$libraries-aarch64-linux" -U '*Python*' -DCMAKE_TOOLCHAIN_FILE=cmake/cross.cmake \
    -DNVFP4_UNITY=ON -DNVFP4_PYTHON=ON "-DNVFP4_ZIG=$zig" \
    "-DPython_EXECUTABLE=$venv/bin/python" "-DPython_INCLUDE_DIR=$3" \
    "-DCMAKE_MODULE_PATH=$(echo "$venv"/lib/python3*/site-packages/scikit_build_core/resources/find_python)"
  cp "$folder/nvfp4" build/dist/nvfp4
  aarch64-linux-gnu-strip build/dist/nvfp4
  tools/arm_wheel.py "$dist/nvfp4-$version-$2"-*_x86_64.whl "$folder"/python/nvfp4/_core*.so build/dist/nvfp4 "$dist"
  rm build/dist/nvfp4
}
if [[ -n $wheels ]]; then
  wheel python3.11
  wheel python3.12
fi
if [[ -n $wheels && -n $arm ]]; then
  tools/arm_python.sh build/arm-python/3.11 bookworm python3.11
  arm_wheel python3.11 cp311-cp311 "$PWD/build/arm-python/3.11/include"
  # No header of the stable ABI depends on the machine.
  arm_wheel python3.12 cp312-abi3 "$(python3.12 -c 'import sysconfig; print(sysconfig.get_path("include"))')"
fi

[[ -z $windows ]] || tools/release_windows.sh "$version" "$dist"
tools/sbom.py "$version" "$dist"/* >build/dist/sbom.json
mv build/dist/sbom.json "$dist/nvfp4-$version.spdx.json"
(cd "$dist" && sha256sum -- * >SHA256SUMS)
ls -l "$dist"
[[ -z $check ]] || tools/check_release.sh "$dist"
