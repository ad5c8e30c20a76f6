"""The exceptions of nvfp4. Each class is also the built-in exception that fits best."""

from __future__ import annotations

import errno
from contextlib import contextmanager


class Error(Exception):
    """Base of everything that nvfp4 raises; the message names argument, value and rule. `code`, such as "NV0102",
    stays when the message changes: `nvfp4 help errors` lists all."""

    code: str = "NV0999"

    def __init__(self, *args: object, code: str | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code

    @property
    def fix(self) -> str:
        """Returns how to fix the error, in one line."""
        from . import _core

        return str(self).rpartition("; hint: ")[2] if "; hint: " in str(self) else _core.fixes[self.code]


class ShapeError(Error, ValueError):
    """Sizes, strides or layouts that do not fit."""

    code = "NV0499"


class InvalidValueError(Error, ValueError):
    """An argument or a tensor element outside its domain."""

    code = "NV0399"


class UnsupportedError(Error, NotImplementedError):
    """The request is valid, but not supported here."""

    code = "NV0599"


class DeviceError(Error, RuntimeError):
    """The CUDA runtime or driver reported an error."""

    code = "NV0699"


class IoError(Error, OSError):
    """The operating system refused: open, read, write, rename, disk full."""

    code = "NV0199"

    @classmethod
    def of(cls, path, error):
        """Returns the IoError for an OSError of Python."""
        codes = {errno.ENOENT: "NV0102", errno.EACCES: "NV0115", errno.ENOSPC: "NV0101"}
        return cls(f"{path}: {error.strerror or error}", code=codes.get(error.errno))


class FormatError(Error, ValueError):
    """A file whose content breaks its format."""

    code = "NV0299"


@contextmanager
def taken_from_transformers(folder, what):
    """Errors of transformers that cannot load a model, or a part of it, become a FormatError of one line."""
    try:
        yield
    except (Error, MemoryError):
        raise
    except Exception as no:
        if type(no).__name__ == "OutOfMemoryError":  # a GPU of PyTorch: the model is right
            raise
        lines = [line.strip() for line in str(no).splitlines() if line.strip()]
        reason = lines[0] if lines else type(no).__name__
        raise FormatError(f"{folder}: transformers cannot load {what}: {reason}") from no
