#!/usr/bin/env bash
# Builds fmt, Highway, RE2 and yaml-cpp as static libraries that a shared one may hold: Debian and Ubuntu have none.
# The sources are the distribution's own, of the versions that are installed, so that headers and code
# are the same. Its PCRE2 will do.
# usage: tools/release_libraries.sh FOLDER
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
read -ra compiler <<<"${CMAKE_CXX_COMPILER_LAUNCHER:-} ${CXX:-c++}"

version_of() { dpkg-query -W -f='${Version}' "$1"; }
declare -A package=([fmtlib]=libfmt-dev [highway]=libhwy-dev [re2]=libre2-dev [yaml-cpp]=libyaml-cpp-dev)
wanted=
for source in fmtlib highway re2 yaml-cpp; do
  # 1-2+b1 is 1-2 compiled once more.
  wanted+="$source=$(version_of "${package[$source]}" | sed 's/+b[0-9]*$//') "
done
[[ $(cat "$folder/built.txt" 2>/dev/null) != "$wanted" ]] || exit 0

# An apt of its own: the system's lists stay as they are.
. /etc/os-release
rm -rf "$folder/apt" "$folder/source"
mkdir -p "$folder/apt/lists/partial" "$folder/source"
if [[ $ID == ubuntu ]]; then
  for suite in "" -updates -security; do
    echo "deb-src http://archive.ubuntu.com/ubuntu $VERSION_CODENAME$suite main universe"
  done
else
  for suite in "" -updates; do echo "deb-src http://deb.debian.org/debian $VERSION_CODENAME$suite main"; done
  echo "deb-src http://deb.debian.org/debian-security $VERSION_CODENAME-security main"
fi >"$folder/apt/sources.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$folder/apt/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
  -o APT::Sandbox::User=root)
"${apt[@]}" update
cd "$folder/source"
# shellcheck disable=SC2086
"${apt[@]}" --download-only source $wanted
for description in *.dsc; do dpkg-source --no-check -x "$description" "${description%%_*}" >/dev/null; done

flags=(-O3 -DNDEBUG -fPIC -std=c++17 -ffile-prefix-map="$folder/source=.")
"${compiler[@]}" "${flags[@]}" -Ifmtlib/include -c fmtlib/src/format.cc -o format.o
"${compiler[@]}" "${flags[@]}" -Ihighway -c highway/hwy/targets.cc -o targets.o
# Debian makes its tables of Unicode from unicode-data, which its sources leave out.
make -s -C re2 REBUILD_TABLES=1 ARFLAGS=rcsD CXX="${compiler[*]}" \
  CXXFLAGS="${flags[*]} -pthread" obj/libre2.a >/dev/null
cp re2/obj/libre2.a "$folder"
mkdir yaml-objects
for file in yaml-cpp/src/*.cpp; do
  "${compiler[@]}" "${flags[@]}" -Iyaml-cpp/include -c "$file" -o "yaml-objects/$(basename "$file").o"
done
ar rcsD "$folder/libyaml-cpp.a" yaml-objects/*.o
ar rcsD "$folder/libfmt.a" format.o
ar rcsD "$folder/libhwy.a" targets.o
echo "$wanted" >"$folder/built.txt"
