#!/usr/bin/env bash
# Builds fmt, Highway, PCRE2, RE2 and yaml-cpp for cmake/mingw.cmake, beside the headers of the other libraries, in
# FOLDER/usr. The sources are the distribution's own, of the versions that are installed.
# usage: tools/windows_libraries.sh FOLDER
set -euo pipefail
. "$(dirname "$0")/debian_sources.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
project=$PWD
header_packages=(nlohmann-json3-dev libcli11-dev libeigen3-dev libxxhash-dev)

declare -A package=([fmtlib]=libfmt-dev [highway]=libhwy-dev [re2]=libre2-dev [yaml-cpp]=libyaml-cpp-dev)
sources=(fmtlib highway re2 yaml-cpp)
wanted=
for source in "${sources[@]}"; do
  wanted+="$source=$(source_version "${package[$source]}") "
done
state="$wanted$(cat tools/windows_libraries.sh tools/debian_sources.sh cmake/mingw.cmake | sha256sum) "
for name in "${header_packages[@]}"; do state+="$name=$(version_of "$name") "; done
[[ $(cat "$folder/built.txt" 2>/dev/null) != "$state" ]] || exit 0

own_apt "$folder"
cd "$folder/source"
# shellcheck disable=SC2086,SC2154  # own_apt sets apt
"${apt[@]}" --download-only source $wanted

# RE2 with a compiler, an archiver and flags. Debian makes its tables of Unicode from unicode-data, which
# its sources leave out.
make_re2() {
  make -s -C re2 -j "$(nproc)" REBUILD_TABLES=1 ARFLAGS=rcsD CXX="$1" AR="$2" CXXFLAGS="$3 -pthread" \
    obj/libre2.a >/dev/null
}

# Each by its own CMake files, which also write what find_package() reads.
windows_library() {
  local source=$1
  shift
  cmake -S "$source" -B "build-$source" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_TOOLCHAIN_FILE="$project/cmake/mingw.cmake" -DNVFP4_SYSROOT="$folder" -DBUILD_TESTING=OFF \
    -DCMAKE_INSTALL_PREFIX="$folder/usr" -DCMAKE_CXX_FLAGS="$windows_flags" "$@" >"build-$source.log" 2>&1 &&
    cmake --build "build-$source" >>"build-$source.log" 2>&1 &&
    cmake --install "build-$source" >>"build-$source.log" 2>&1 ||
    { tail -n 30 "build-$source.log" >&2 && return 1; }
}

windows_libraries() {
  windows_flags="-ffile-prefix-map=$folder/source=. -Wa,-muse-unaligned-vector-move"
  rm -rf "${folder:?}/usr"
  mkdir -p "$folder/usr/lib" "$folder/usr/include/re2"
  for name in "${header_packages[@]}"; do
    dpkg -L "$name" | grep -E '^/usr/(include|share/cmake|share/eigen3|lib/cmake)/' | while read -r file; do
      if [[ -f $file ]]; then echo "${file#/usr/}"; fi
    done
  done | tar -C /usr -c -T - | tar -C "$folder/usr" -x
  windows_library fmtlib -DFMT_DOC=OFF -DFMT_TEST=OFF
  windows_library highway -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF
  windows_library yaml-cpp -DYAML_CPP_BUILD_TOOLS=OFF -DYAML_CPP_BUILD_TESTS=OFF
  windows_library pcre2 -DPCRE2_BUILD_TESTS=OFF -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_SUPPORT_JIT=ON \
    -DPCRE2_SUPPORT_UNICODE=ON
  make_re2 "${CMAKE_CXX_COMPILER_LAUNCHER:-} x86_64-w64-mingw32-g++-posix" x86_64-w64-mingw32-ar \
    "-O3 -DNDEBUG -std=c++17 $windows_flags"
  cp re2/obj/libre2.a "$folder/usr/lib"
  cp re2/re2/{filtered_re2,re2,set,stringpiece}.h "$folder/usr/include/re2"
}

# Any version: its header comes with it. An archive may have dropped a security update's source.
"${apt[@]}" --download-only source pcre2 2>/dev/null || "${apt[@]}" --download-only source "pcre2/$VERSION_CODENAME"
for description in *.dsc; do dpkg-source --no-check -x "$description" "${description%%_*}" >/dev/null; done
windows_libraries
echo "$state" >"$folder/built.txt"
