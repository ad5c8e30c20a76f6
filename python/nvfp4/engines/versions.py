"""Which versions of an engine its file is written for."""

import re

from .._errors import UnsupportedError


def check(engine, version, versions):
    """UnsupportedError unless versions[0] <= version < versions[1]."""
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:len(versions[0])])
    if not versions[0] <= found < versions[1]:
        at_least, below = (".".join(map(str, v)) for v in versions)
        raise UnsupportedError(f"{engine} {version}, must be at least {at_least} and below {below}")
