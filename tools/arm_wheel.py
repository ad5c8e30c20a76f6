#!/usr/bin/env python3
"""Makes the wheel for 64-bit ARM from that for x86-64: the same Python files, another module and another command.

usage: tools/arm_wheel.py WHEEL MODULE COMMAND FOLDER
"""

import base64
import hashlib
import os
import pathlib
import re
import sys
import time
import zipfile

PLATFORM = "manylinux_2_28_aarch64"


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def main():
    wheel, module, command, folder = map(pathlib.Path, sys.argv[1:])
    date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    distribution, tags = wheel.stem.rsplit("-", 1)[0], wheel.stem.rsplit("-", 1)[0].split("-", 2)[2]
    assert ("abi3" in module.name) == ("abi3" in tags), f"{module.name} is not for {tags}"
    replaced = set()
    record = ""
    out = folder / f"{distribution}-{PLATFORM}.whl"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:

        def write(name, data, mode):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = mode << 16
            target.writestr(entry, data)

        for entry in sorted(source.infolist(), key=lambda entry: entry.filename):
            name, data = entry.filename, source.read(entry)
            if re.fullmatch(r"nvfp4/_core\..*so", name):
                name, data = name.replace("x86_64", "aarch64"), module.read_bytes()
                replaced.add("module")
            elif name == "nvfp4/bin/nvfp4":
                data = command.read_bytes()
                replaced.add("command")
            elif name.endswith(".dist-info/WHEEL"):
                text = re.sub(r"(?m)^Tag: .*\n", "", data.decode())
                data = f"{text.rstrip()}\nTag: {tags}-{PLATFORM}\n\n".encode()
                replaced.add("tags")
            elif name.endswith(".dist-info/RECORD"):
                record_name = name
                continue
            elif name.endswith("/"):
                continue
            assert not data.startswith(b"\x7fELF") or data[18:20] == b"\xb7\0", f"{name} is for another machine"
            write(name, data, entry.external_attr >> 16)
            record += record_line(name, data)
        write(record_name, record + f"{record_name},,\n", 0o100664)
    assert replaced == {"module", "command", "tags"}, replaced
    print(f"{out.name}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
