#!/usr/bin/env bash
# Builds fmt, Highway, RE2 and yaml-cpp as static libraries that a shared one may hold: Debian and Ubuntu have none.
# The sources are the distribution's own, of the versions that are installed, so that headers and code
# are the same. Its PCRE2 will do, but for another kind of machine: then PCRE2 is built too, and FOLDER/include and
# FOLDER/cmake are all that CMake finds, FOLDER/source has the terms.
# usage: [CXX=... CC=... AR=...] tools/release_libraries.sh FOLDER [cross]
set -euo pipefail
. "$(dirname "$0")/debian_sources.sh"
folder=$(mkdir -p "$1" && cd "$1" && pwd) cross=${2:-}
read -ra compiler <<<"${CMAKE_CXX_COMPILER_LAUNCHER:-} ${CXX:-c++}"
read -ra archiver <<<"${AR:-ar}"

declare -A package=([fmtlib]=libfmt-dev [highway]=libhwy-dev [re2]=libre2-dev [yaml-cpp]=libyaml-cpp-dev
  [pcre2]=libpcre2-dev)
wanted=
for source in fmtlib highway re2 yaml-cpp ${cross:+pcre2}; do
  wanted+="$source=$(source_version "${package[$source]}") "
done
[[ $(cat "$folder/built.txt" 2>/dev/null) != "$wanted" ]] || exit 0

own_apt "$folder"
cd "$folder/source"
# shellcheck disable=SC2086,SC2154  # own_apt sets apt
"${apt[@]}" --download-only source ${wanted/pcre2=*/}
if [[ $wanted == *pcre2=* ]]; then
  # A mirror may hold no sources of security updates. Its header comes with it, so any version will do.
  pcre2=$(source_version libpcre2-dev)
  "${apt[@]}" --download-only source "pcre2=$pcre2" ||
    { pcre2=${pcre2%+deb*} && "${apt[@]}" --download-only source "pcre2=$pcre2"; }
  echo "$pcre2" >"$folder/pcre2.txt"
fi
for description in *.dsc; do dpkg-source --no-check -x "$description" "${description%%_*}" >/dev/null; done

flags=(-O3 -DNDEBUG -fPIC -ffile-prefix-map="$folder/source=.")
c_flags=("${flags[@]}")
flags+=(-std=c++17)
"${compiler[@]}" "${flags[@]}" -Ifmtlib/include -c fmtlib/src/format.cc -o format.o
for file in targets per_target; do
  "${compiler[@]}" "${flags[@]}" -Ihighway -c highway/hwy/$file.cc -o $file.o
done
# Debian makes its tables of Unicode from unicode-data, which its sources leave out.
make -s -C re2 -j "$(nproc)" REBUILD_TABLES=1 AR="${archiver[*]}" ARFLAGS=rcsD CXX="${compiler[*]}" \
  CXXFLAGS="${flags[*]} -pthread" obj/libre2.a >/dev/null
cp re2/obj/libre2.a "$folder"
# compile FOLDER COMPILER...: objects in FOLDER, as many at once as there are processors, of the files that are read.
compile() {
  mkdir "$1"
  # shellcheck disable=SC2016
  xargs -P "$(nproc)" -I FILE bash -c '"${@:3}" -c "$2" -o "$1/$(basename "$2").o"' - "$1" FILE "${@:2}"
}
printf '%s\n' yaml-cpp/src/*.cpp | compile yaml-objects "${compiler[@]}" "${flags[@]}" -Iyaml-cpp/include
"${archiver[@]}" rcsD "$folder/libyaml-cpp.a" yaml-objects/*.o
"${archiver[@]}" rcsD "$folder/libfmt.a" format.o
"${archiver[@]}" rcsD "$folder/libhwy.a" targets.o per_target.o

# A file of CMake for a library NAME of a VERSION: its target, its archive or none, what it defines.
cmake_file() {
  local name=$1 version=$2 target=$3 archive=$4 kind=INTERFACE
  [[ -z $archive ]] || kind=STATIC
  {
    echo "add_library($target $kind IMPORTED)"
    [[ -z $archive ]] || echo "set_target_properties($target PROPERTIES IMPORTED_CONFIGURATIONS RELEASE" \
      "IMPORTED_LOCATION_RELEASE \"$folder/$archive\")"
    echo "set_target_properties($target PROPERTIES INTERFACE_INCLUDE_DIRECTORIES \"$folder/include${5:-}\")"
  } >"$folder/cmake/$name-config.cmake"
  printf 'set(PACKAGE_VERSION %s)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n' "$version" >"$folder/cmake/$name-config-version.cmake"
}
if [[ -n $cross ]]; then
  # As NON-AUTOTOOLS-BUILD of PCRE2 has it, for texts of bytes.
  cp pcre2/src/config.h.generic pcre2/src/config.h
  cp pcre2/src/pcre2.h.generic pcre2/src/pcre2.h
  cp pcre2/src/pcre2_chartables.c.dist pcre2/src/pcre2_chartables.c
  read -ra c_compiler <<<"${CMAKE_CXX_COMPILER_LAUNCHER:-} ${CC:-cc}"
  for file in auto_possess chartables chkdint compile config context convert dfa_match error extuni find_bracket \
    jit_compile maketables match match_data newline ord2utf pattern_info script_run serialize string_utils study \
    substitute substring tables ucd valid_utf xclass; do
    [[ ! -e pcre2/src/pcre2_$file.c ]] || echo "pcre2/src/pcre2_$file.c"  # chkdint: since 10.43
  done | compile pcre2-objects "${c_compiler[@]}" "${c_flags[@]}" -DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 \
    -DPCRE2_STATIC -DSUPPORT_UNICODE -Ipcre2/src
  "${archiver[@]}" rcsD "$folder/libpcre2-8.a" pcre2-objects/*.o
  rm -rf "$folder/include" "$folder/cmake"
  mkdir -p "$folder/include" "$folder/cmake"
  # Headers alone are the same for every machine.
  cp -r fmtlib/include/fmt re2/re2 yaml-cpp/include/yaml-cpp pcre2/src/pcre2.h /usr/include/nlohmann /usr/include/CLI \
    /usr/include/eigen3 /usr/include/xxhash.h "$folder/include/"
  mkdir "$folder/include/hwy"
  (cd highway && find hwy -name '*.h' -exec cp --parents {} "$folder/include/" \;)
  cmake_file fmt "$(version_of libfmt-dev | sed 's/[+-].*//')" fmt::fmt libfmt.a
  cmake_file hwy "$(version_of libhwy-dev | sed 's/[+-].*//')" hwy::hwy libhwy.a
  cmake_file nlohmann_json "$(version_of nlohmann-json3-dev | sed 's/[+-].*//')" nlohmann_json::nlohmann_json ''
  cmake_file CLI11 "$(version_of libcli11-dev | sed 's/[+-].*//')" CLI11::CLI11 ''
  cmake_file eigen3 "$(version_of libeigen3-dev | sed 's/[+-].*//')" Eigen3::Eigen '' /eigen3
fi
echo "$wanted" >"$folder/built.txt"
