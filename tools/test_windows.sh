#!/usr/bin/env bash
# Builds the command for Windows and runs it in Wine, which is not Windows: files that it writes have
# the bytes of the Linux command's, on every backend of this CPU; a killed run is resumed; long paths and
# names that are not ASCII. Slow: not part of tools/test.sh.
# usage: tools/test_windows.sh [LINUX-COMMAND [WINDOWS-COMMAND]]    built if not given
set -euo pipefail
cd "$(dirname "$0")/.."
linux=${1:-} windows=${2:-}
if [[ -z $windows ]]; then
  tools/build_windows.sh
  windows=build/windows/nvfp4.exe
fi
if [[ -z $linux ]]; then
  tools/build.sh command
  linux=build/command/nvfp4
fi
platform_tests=$(dirname "$(realpath "$windows")")/nvfp4_platform_tests.exe
linux=$(realpath "$linux") windows=$(realpath "$windows")

folder=$(mktemp -d)
export WINEPREFIX=${WINEPREFIX:-$folder/wine} WINEDEBUG=-all NO_COLOR=1 LC_ALL=C.UTF-8
wine=$(command -v wine64 || echo /usr/lib/wine/wine64)
running=
stop() {
  if [[ -n $running ]]; then kill -9 "$running" 2>/dev/null || true; fi
  rm -rf "$folder"
}
trap stop EXIT
cd "$folder"
mkdir linux windows

passed=0
pass() {
  passed=$((passed + 1))
  echo "ok: $*"
}
die() {
  echo "FAILED: $*" >&2
  exit 1
}
win() { "$wine" "$windows" "$@"; }
# The same words for both, each in its own folder.
both() {
  (cd linux && "$linux" "$@")
  (cd windows && win "$@")
}
same() { diff -r "linux/$1" "windows/$1" || die "$1 has other bytes than on Linux"; }
# A command that has to fail, with a status and a text.
fails() {
  local status=$1 text=$2 out found=0
  shift 2
  out=$(win "$@" 2>&1) || found=$?
  [[ $found == "$status" ]] || die "$* ends with $found, must be $status: $out"
  [[ $out == *"$text"* ]] || die "$* says '$out', must say '$text'"
}

"$wine" wineboot --init >/dev/null 2>&1 || die "Wine does not start"

# Files, locks, paths of every kind.
"$wine" "$platform_tests" --gtest_brief=1 || die "tests/platform"
pass "tests/platform"

# Nothing but what Windows has.
dlls=$(x86_64-w64-mingw32-objdump -p "$windows" | sed -n 's/.*DLL Name: //p' | tr 'A-Z' 'a-z' | sort)
for dll in $dlls; do
  case $dll in
    kernel32.dll | msvcrt.dll | shell32.dll | bcrypt.dll | advapi32.dll) ;;
    *) die "needs $dll" ;;
  esac
done
pass "needs only DLLs of Windows: ${dlls//$'\n'/ }"

[[ $(win --version) == "$("$linux" --version)" ]] || die "--version differs: $(win --version)"
pass "--version"

both sample model --layers 2 --scale 0.0625 --shards 2 --quiet
same model
pass "sample: the bytes of Linux"
both quantize model out --quiet
same out
pass "quantize: the bytes of Linux"
for arguments in "verify out" "compare model out --json" "inspect out --json" "inspect model" "help quantize"; do
  read -ra words <<<"$arguments"
  [[ $(cd windows && win "${words[@]}") == "$(cd linux && "$linux" "${words[@]}")" ]] ||
    die "$arguments prints something else than on Linux"
  pass "$arguments: the text of Linux"
done
both compare model out --html page.html >/dev/null
same page.html
pass "compare --html: the bytes of Linux"
both convert out other --to compressed-tensors --quiet
same other
pass "convert: the bytes of Linux"
both quantize model gguf.gguf --quiet 2>/dev/null
same gguf.gguf
pass "GGUF: the bytes of Linux"

# Vectors of 32 and 64 bytes, which mingw's compiler once put where they may not be.
"$linux" quantize linux/model linux/on --method mse --quiet
for backend in $(win selftest --no-rates --json 2>/dev/null | python3 -c '
import json, sys
print(*(b["name"] for b in json.load(sys.stdin)["backends"] if b["available"]))'); do
  win quantize windows/model windows/on --backend "$backend" --method mse --overwrite --quiet
  same on
  pass "quantize on $backend: the bytes of Linux"
done
win selftest --no-rates >/dev/null || die "selftest"
pass "selftest"

# Names that no code page of Windows holds together, the last one outside of UTF-16's first plane.
name='ü-模型-😀'
mv windows/model "windows/$name"
(cd windows && win quantize "$name" "out-$name" --quiet && win verify "out-$name" >/dev/null)
diff -r linux/out "windows/out-$name" || die "quantized under another name, other bytes"
fails 1 "$name-not-there" quantize "windows/$name-not-there" windows/none
win inspect "windows/$name" | grep -qF "$name" || die "inspect does not show $name"
mv "windows/$name" windows/model
pass "names that are not ASCII"

long=$(printf 'a-folder-with-a-long-name-%03d/' {1..12})
mkdir -p "windows/$long"
cp -r windows/model "windows/$long/model"
win quantize "windows/$long/model" "windows/$long/new/out" --quiet
win verify "windows/$long/new/out" >/dev/null
diff -r linux/out "windows/$long/new/out" || die "quantized under a long path, other bytes"
pass "paths of more than 260 characters (${#long} and more)"

# Killed in its work, and gone on with.
# Slowly, lest it is over by then.
"$linux" sample big --layers 4 --scale 0.125 --shards 6 --quiet
"$linux" quantize big big-out --quiet
start_big() {
  # A job in the background would ignore Ctrl-C.
  env --default-signal=INT "$wine" "$windows" quantize big "$1" --backend reference --threads 1 --quiet 2>"$1.txt" &
  running=$!
  for ((i = 0; i < 6000; ++i)); do
    if compgen -G "$1/*.safetensors" >/dev/null; then return; fi
    kill -0 $running 2>/dev/null || die "the run ended before it was killed: $(cat "$1.txt")"
    sleep 0.05
  done
  die "no shard after five minutes"
}
start_big killed
fails 1 "another process is writing to it" quantize big killed --resume --quiet
pass "a folder that another process writes to is refused"
kill -9 $running
wait $running 2>/dev/null || true
running=
[[ ! -e killed/config.json ]] || die "the run was over before it was killed"
win quantize big killed --resume --quiet
diff -r big-out killed || die "resumed, other bytes"
pass "killed and resumed: the bytes of Linux"

start_big stopped
kill -INT $running
status=0
wait $running || status=$?
running=
[[ $status != 0 ]] || die "Ctrl-C: status 0"
grep -q "interrupted; to go on: .*--resume" stopped.txt || die "Ctrl-C: says '$(cat stopped.txt)'"
win quantize big stopped --resume --quiet
diff -r big-out stopped || die "resumed after Ctrl-C, other bytes"
pass "Ctrl-C says how to go on"

fails 2 "'nvfp4 quantize --help' lists" quantize
fails 1 "[NV" quantize windows/none windows/none2
fails 1 "must be empty" quantize windows/model windows/out
pass "errors: text and status"
echo "$passed checks passed"
