#!/usr/bin/env bash
# Turns an installed tree, FOLDER/usr, into that of a Debian package: its description, its copyright and
# changelog, pages compressed, completions where Debian's shells look.
# usage: tools/debian_files.sh FOLDER VERSION ARCHITECTURE
# Whose package it is: NVFP4_MAINTAINER="Name <address>" or DEBFULLNAME and DEBEMAIL, as Debian's own tools
# have it; else the author of the last commit.
set -euo pipefail
folder=$1 version=$2 architecture=$3
share=$folder/usr/share doc=$folder/usr/share/doc/nvfp4
# At the time of SOURCE_DATE_EPOCH, as a changelog wants it.
when=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
author() { git log -1 --format="$1" 2>/dev/null || true; }
maintainer=${NVFP4_MAINTAINER:-${DEBFULLNAME:-$(author %an)} <${DEBEMAIL:-$(author %ae)}>}
[[ $maintainer =~ ^[^\<\>]+\ \<[^@\ ]+@[^@\ ]+\>$ ]] || {
  echo "debian_files: maintainer = '$maintainer', must be 'Name <address>': set NVFP4_MAINTAINER" >&2
  exit 1
}

mkdir -p "$share/zsh/vendor-completions" "$share/lintian/overrides" "$folder/DEBIAN"
mv "$share/zsh/site-functions/_nvfp4" "$share/zsh/vendor-completions/"
rmdir "$share/zsh/site-functions"
gzip -9n "$share"/man/man1/*.1

{
  cat <<'TEXT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: nvfp4.cpp
Comment: The command is linked with fmt, Highway, PCRE2, RE2, yaml-cpp, Eigen, JSON for Modern C++, CLI11,
 libstdc++ and glibc: NAME.copyright in this folder has the terms of each.

Files: *
Copyright: 2026 the nvfp4.cpp authors
License: Apache-2.0
 /usr/share/common-licenses/Apache-2.0 has the text.
TEXT
} >"$doc/copyright"
rm "$doc/LICENSE"
gzip -9n "$doc/CHANGELOG.md"
printf 'nvfp4 (%s) unstable; urgency=medium\n\n  * Release %s; CHANGELOG.md.gz has the changes.\n\n -- %s  %s\n' \
  "$version" "$version" "$maintainer" "$when" | gzip -9n >"$doc/changelog.gz"

# Runs on any Linux of its architecture, whichever libraries it has: it is linked with none, at an address that varies,
# which lintian takes for a shared library.
printf 'nvfp4: %s [usr/bin/nvfp4]\n' shared-library-lacks-prerequisites >"$share/lintian/overrides/nvfp4"

cat >"$folder/DEBIAN/control" <<CONTROL
Package: nvfp4
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k --apparent-size -s "$folder/usr" | cut -f1)
Section: science
Priority: optional
Description: quantize neural networks to NVFP4, on CPUs
 NVFP4 stores the weights of a neural network in 4.5 bits each. The command
 quantizes Hugging Face checkpoints to it, and verifies, repairs, compares and
 converts such checkpoints. This build uses CPUs alone: it has no CUDA.
CONTROL
(cd "$folder" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
