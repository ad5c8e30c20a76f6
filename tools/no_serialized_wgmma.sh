#!/bin/sh
# usage: tools/no_serialized_wgmma.sh COMPILER ARGUMENT...
#
# Runs a compiler, and fails if ptxas could not let products (wgmma) run beside other instructions:
# it says so in passing, and the kernel takes several times as long.
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
"$@" 2>"$log"
status=$?
cat "$log" >&2
if [ $status -eq 0 ] && grep -q 'wgmma.* are serialized' "$log"; then
  echo "$0: error: products are serialized, see above" >&2
  status=1
fi
exit $status
