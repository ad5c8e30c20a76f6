# Sources of the distribution's packages, of the versions that are installed: what tools/release_libraries.sh and
# tools/windows_libraries.sh have in common. To be sourced.
# shellcheck shell=bash

version_of() { dpkg-query -W -f='${Version}' "$1"; }
# 1-2+b1 is 1-2 compiled once more.
source_version() { version_of "$1" | sed 's/+b[0-9]*$//'; }

# own_apt FOLDER: `apt` becomes an apt-get with lists of its own, so that the system's stay as they are; FOLDER/source
# is new and empty.
own_apt() {
  local folder=$1
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
}
