#!/usr/bin/env bash
# Makes the archive of the command for Windows on x86-64: nvfp4-VERSION-x86_64-windows.zip, which has
# nvfp4.exe and the licences of the code in it. Times and order in it are fixed.
# usage: tools/release_windows.sh VERSION FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
version=$1 folder=$(mkdir -p "$2" && cd "$2" && pwd)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} LC_ALL=C TZ=UTC
tools/build_windows.sh

name=nvfp4-$version-x86_64-windows
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/$name/licences"
x86_64-w64-mingw32-strip -o "$place/$name/nvfp4.exe" build/windows/nvfp4.exe
cp LICENSE CHANGELOG.md "$place/$name"
for package in g++-mingw-w64-x86-64-posix mingw-w64-x86-64-dev libfmt-dev libhwy-dev libpcre2-dev libre2-dev \
  libyaml-cpp-dev libeigen3-dev nlohmann-json3-dev libcli11-dev libxxhash-dev; do
  cp -L "/usr/share/doc/$package/copyright" "$place/$name/licences/$package.txt"
done
python3 - "$place/$name" "$folder/$name.zip" <<'ZIP'
import os, pathlib, sys, time, zipfile

root, out = pathlib.Path(sys.argv[1]), sys.argv[2]
date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for file in sorted(f for f in root.rglob("*") if f.is_file()):
        entry = zipfile.ZipInfo(str(file.relative_to(root.parent)), date)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o100644 << 16
        archive.writestr(entry, file.read_bytes())
ZIP
ls -l "$folder/$name.zip"
