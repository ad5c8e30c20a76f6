#!/usr/bin/env python3
"""Writes the list of the parts of a release as SPDX 2.3 in JSON: this project, and the packages whose
code is linked into its files, with the versions that are installed here.

usage: tools/sbom.py VERSION FILE...    FILE: what the list is for, with its SHA-256
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

# Debian's package, whose code it is, its licence.
LINKED = [
    ("libfmt-dev", "fmt", "MIT"),
    ("libhwy-dev", "Highway", "Apache-2.0"),
    ("libpcre2-dev", "PCRE2", "BSD-3-Clause"),
    ("libre2-dev", "RE2", "BSD-3-Clause"),
    ("libyaml-cpp-dev", "yaml-cpp", "MIT"),
    ("libeigen3-dev", "Eigen", "MPL-2.0"),
    ("nlohmann-json3-dev", "JSON for Modern C++", "MIT"),
    ("libcli11-dev", "CLI11", "BSD-3-Clause"),
    ("libxxhash-dev", "xxHash", "BSD-2-Clause"),
    ("libstdc++-12-dev", "libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ("libc6-dev", "glibc", "LGPL-2.1-or-later"),
]
# Of what is for 64-bit ARM under Linux.
LINKED_ARM = [
    ("libstdc++-12-dev-arm64-cross", "libstdc++ for 64-bit ARM", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ("libc6-dev-arm64-cross", "glibc for 64-bit ARM", "LGPL-2.1-or-later"),
]
# Of the archive for Windows.
LINKED_WINDOWS = [("mingw-w64-x86-64-dev", "mingw-w64", "ZPL-2.1")]


def installed(package):
    """The package's version, "" where it is not installed."""
    shown = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
    return shown.stdout if shown.returncode == 0 else ""


def distribution():
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return fields["ID"].strip('"'), fields["VERSION_ID"].strip('"')


def linked_package(package, name, license):
    system, release = distribution()
    return {
        "SPDXID": f"SPDXRef-{package.replace('+', '')}",
        "name": name,
        "versionInfo": installed(package),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": license,
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:deb/{system}/{package.replace('+', '%2B')}@{installed(package)}"
                                f"?arch={'all' if package.endswith('-cross') else 'amd64'}&distro={system}-{release}",
        }],
    }


def cuda_package():
    """CUDA's runtime, which is linked into what has CUDA."""
    shown = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "SPDXID": "SPDXRef-cudart",
        "name": "CUDA runtime",
        "versionInfo": re.search(r"V([0-9.]+)", shown)[1],
        "downloadLocation": "https://developer.nvidia.com/cuda-toolkit",
        "filesAnalyzed": False,
        "licenseConcluded": "LicenseRef-CUDA",
        "licenseDeclared": "LicenseRef-CUDA",
        "copyrightText": "NOASSERTION",
    }


def main():
    version, files = sys.argv[1], [pathlib.Path(f) for f in sys.argv[2:]]
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    sums = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    license = "Apache-2.0"
    linked = LINKED + (LINKED_ARM if any("aarch64-linux" in name or "_aarch64.whl" in name for name in sums) else [])
    linked += LINKED_WINDOWS if any("x86_64-windows" in name for name in sums) else []
    # Built from sources for other machines, of a version that may be another than what is installed.
    pcre2 = sorted({f.read_text().strip() for f in pathlib.Path("build").glob("release-libraries-*/pcre2.txt")})
    packages = [{
        "SPDXID": "SPDXRef-nvfp4",
        "name": "nvfp4",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": license,
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
    }] + [linked_package(*row) for row in linked if installed(row[0])]
    for i, built in enumerate(pcre2 if any("aarch64" in name for name in sums) else []):
        package = linked_package("libpcre2-dev", "PCRE2 for 64-bit ARM", "BSD-3-Clause")
        source = package["externalRefs"][0]["referenceLocator"].replace("libpcre2-dev", "pcre2")
        packages.append(package | {
            "SPDXID": f"SPDXRef-pcre2-source-{i}",
            "versionInfo": built,
            "externalRefs": [package["externalRefs"][0] | {
                "referenceLocator": source.replace(package["versionInfo"], built).replace("arch=amd64", "arch=source"),
            }],
        })
    with_cuda = any(name.endswith("-cuda.tar.gz") for name in sums)
    if with_cuda:
        packages.append(cuda_package())
    whole = hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"nvfp4-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/nvfp4-{version}-{whole[:32]}",
        "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: nvfp4-tools-sbom"]},
        "packages": packages,
        "files": [{
            "SPDXID": f"SPDXRef-file-{i}",
            "fileName": f"./{name}",
            "checksums": [{"algorithm": "SHA256", "checksumValue": sums[name]}],
            "licenseConcluded": "NOASSERTION",
            "copyrightText": "NOASSERTION",
        } for i, name in enumerate(sorted(sums))],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-nvfp4"},
            *({"spdxElementId": "SPDXRef-nvfp4", "relationshipType": "STATIC_LINK", "relatedSpdxElement": p["SPDXID"]}
              for p in packages[1:]),
        ],
    }
    if with_cuda:
        document["hasExtractedLicensingInfos"] = [{
            "licenseId": "LicenseRef-CUDA",
            "name": "NVIDIA CUDA Toolkit End User License Agreement",
            "extractedText": "https://docs.nvidia.com/cuda/eula; nvfp4/cuda-cudart.copyright of the archive",
        }]
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
