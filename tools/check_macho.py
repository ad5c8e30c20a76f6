#!/usr/bin/env python3
"""Reads a command for macOS without running it: for 64-bit ARM, signed, and only what every macOS has is loaded.

usage: tools/check_macho.py COMMAND
"""

import struct
import sys

MAGIC_64, ARM64, EXECUTE = 0xFEEDFACF, 0x0100000C, 2
LOAD_DYLIB, CODE_SIGNATURE, BUILD_VERSION = 0xC, 0x1D, 0x32


def main():
    data = open(sys.argv[1], "rb").read()
    magic, machine, _, kind, commands = struct.unpack_from("<5I", data)
    if (magic, machine, kind) != (MAGIC_64, ARM64, EXECUTE):
        sys.exit(f"check_macho: {sys.argv[1]}: magic {magic:#x}, machine {machine:#x}, kind {kind}: "
                 "no command of 64-bit ARM")
    at, libraries, signed, oldest = 32, [], False, None
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command == LOAD_DYLIB:
            name = at + struct.unpack_from("<I", data, at + 8)[0]
            libraries.append(data[name:data.index(b"\0", name)].decode())
        elif command == CODE_SIGNATURE:
            signed = True
        elif command == BUILD_VERSION:
            version = struct.unpack_from("<I", data, at + 12)[0]
            oldest = f"{version >> 16}.{version >> 8 & 255}"
        at += size
    others = [name for name in libraries if not name.startswith(("/usr/lib/", "/System/"))]
    if others:
        sys.exit(f"check_macho: {sys.argv[1]} loads {', '.join(others)}")
    if not signed:
        sys.exit(f"check_macho: {sys.argv[1]} is not signed, so that macOS ends it")
    print(f"{len(data)} bytes, for macOS {oldest} and newer, loads {', '.join(libraries)}")


if __name__ == "__main__":
    main()
