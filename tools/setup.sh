#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages of a list that are missing or too old.
# usage: tools/setup.sh [LIST]    default: tools/packages.txt
set -euo pipefail
cd "$(dirname "$0")/.."
list=${1:-tools/packages.txt}

die() {
  echo "setup: $*" >&2
  exit 1
}

command -v apt-get >/dev/null ||
  die "this is neither Debian nor Ubuntu (no apt-get); install the equivalents of $list yourself"

# Prints every package of the list that is not here, or is too old, as "name minimum". One whose triggers are pending
# is here: another apt is at work.
needed() {
  sed 's/#.*//' "$list" | while read -r name minimum; do
    [ -n "$name" ] || continue
    have=$(dpkg-query -W -f='${db:Status-Status} ${Version}\n' "$name" 2>/dev/null |
      sed -nE 's/^(installed|triggers-(awaited|pending)) //p' | head -n 1)
    if [ -z "$have" ] || dpkg --compare-versions "$have" lt "$minimum"; then
      echo "$name $minimum"
    fi
  done
}

missing=$(needed)
[ -n "$missing" ] || exit 0
names=$(cut -d' ' -f1 <<<"$missing" | tr '\n' ' ')
echo "setup: installing $names"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "not root and no sudo; as root run: apt-get install $names"
  as_root=(sudo)
fi
# Freshly started machines may still be installing updates: wait for their lock.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update || echo "setup: package lists could not be refreshed; trying with those here" >&2
# shellcheck disable=SC2086
"${apt[@]}" install -y --no-install-recommends $names || die "apt-get could not install: $names"

missing=$(needed)
[ -z "$missing" ] || die "too old on this system, needed at least: $(paste -sd, <<<"$missing")"
