#!/usr/bin/env bash
# Cross-compiles for 64-bit ARM and runs the unit tests in qemu. Slow: not part of tools/test.sh.
# The ARM libraries are unpacked below build/arm64; the system gets a cross compiler and qemu, but
# no foreign architecture.
# usage: tools/test_arm.sh [CTEST ARGUMENT...]    for example: tools/test_arm.sh -R Layout
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh
tools/setup.sh tools/packages_arm.txt

root=$PWD/build/arm64
sysroot=$root/sysroot
packages=(libhwy-dev libfmt-dev nlohmann-json3-dev libpcre2-dev libre2-dev libyaml-cpp-dev libcli11-dev
  libgtest-dev libgmock-dev libeigen3-dev libxxhash-dev)

# An apt of its own, for arm64 only: its lists and downloads never touch those of the system.
apt_arm() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
    -o Dir::State="$root/apt" -o Dir::State::status="$root/apt/status" \
    -o Dir::Cache="$root/apt" -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
    "${sources[@]}" "$@"
}

# Debian's archive holds every architecture; Ubuntu keeps ARM in an archive of its own.
sources=()
if grep -q '^ID=ubuntu' /etc/os-release; then
  mkdir -p "$root/apt"
  (. /etc/os-release && echo "deb http://ports.ubuntu.com/ubuntu-ports $VERSION_CODENAME main universe") \
    >"$root/apt/sources.list"
  sources=(-o Dir::Etc::SourceList="$root/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null)
fi

if [ ! "$sysroot/complete" -nt tools/test_arm.sh ]; then
  rm -rf "$sysroot" "$root/apt/archives"
  mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial" "$sysroot"
  touch "$root/apt/status"
  apt_arm update
  apt_arm install -y --download-only --no-install-recommends "${packages[@]}"
  for deb in "$root"/apt/archives/*.deb; do
    dpkg-deb --extract "$deb" "$sysroot"
  done
  touch "$sysroot/complete"
fi

cmake -S . -B "$root/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DNVFP4_SYSROOT="$sysroot" \
  -DNVFP4_BENCH=OFF -DNVFP4_INSTALL=OFF
cmake --build "$root/build"
ctest --test-dir "$root/build" --output-on-failure -j "$(nproc)" "$@"
