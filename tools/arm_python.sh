#!/usr/bin/env bash
# Unpacks Debian's Python for 64-bit ARM, which qemu runs: FOLDER/root, and FOLDER/include with headers of its own
# pyconfig.h. Nothing is installed: apt has lists of its own below FOLDER.
# usage: tools/arm_python.sh FOLDER SUITE PYTHON    for example: build/arm-python/3.11 bookworm python3.11
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd) suite=$2 python=$3
[[ ! -e $folder/complete ]] || exit 0
rm -rf "$folder/root" "$folder/include" "$folder/apt"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/root" "$folder/include"
touch "$folder/apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
  >"$folder/apt/sources.list"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::State=$folder/apt"
  -o "Dir::State::status=$folder/apt/status" -o "Dir::Cache=$folder/apt" -o APT::Sandbox::User=root
  -o Debug::NoLocking=1 -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null)
"${apt[@]}" update
"${apt[@]}" install -y --download-only --no-install-recommends "$python-minimal" "lib$python-stdlib" "lib$python-dev" \
  libstdc++6 >/dev/null  # NumPy wants it
for package in "$folder"/apt/archives/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -C "$folder/root" -xf -; done
[[ -e $folder/root/lib ]] || ln -s usr/lib "$folder/root/lib"  # a base package has it
cp -r "$folder/root/usr/include/$python/." "$folder/include/"
cp "$folder/root/usr/include/aarch64-linux-gnu/$python/pyconfig.h" "$folder/include/"
touch "$folder/complete"
