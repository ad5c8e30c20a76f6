"""Versions of the packages that load this one: older ones than were tested are an error, newer ones a warning, and only
what they changed is an error."""

import re
import warnings
from contextlib import contextmanager

from ._errors import UnsupportedError


def _numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def require_oldest(program, version, oldest):
    """Raises UnsupportedError if `version` is older than the oldest one that was tested."""
    if _numbers(version) < oldest:
        raise UnsupportedError(f"{program} {version}, must be {'.'.join(map(str, oldest))} or newer; install a newer one")


def warn_if_untested(program, version, newest):
    """Warns if `version` is newer than the newest one that was tested. Python shows a warning once."""
    if _numbers(version)[:len(newest)] > newest:
        warnings.warn(f"{program} {version} is newer than {'.'.join(map(str, newest))}, the newest version that nvfp4 "
                      "was tested with", stacklevel=3)


@contextmanager
def interface(program, version):
    """Turns what an import inside misses in `program` into an UnsupportedError that names it."""
    try:
        yield
    except (ImportError, AttributeError) as missing:
        if (getattr(missing, "name", None) or "").startswith("nvfp4"):
            raise  # a part of this package is missing
        raise UnsupportedError(f"{program} {version} has changed what nvfp4 needs of it: {missing}") from missing
