"""The exceptions of nvfp4. Each class is also the built-in exception that fits best."""

from contextlib import contextmanager


class Error(Exception):
    """Base of everything that nvfp4 raises; the message names argument, value and rule."""

    def _about(self):
        from . import _core

        name = type(self).__name__
        return _core.error_code("ValueError" if name == "InvalidValueError" else name, str(self))

    @property
    def code(self):
        """The code, such as "NV0102", which stays when the message changes. docs/errors.md lists all."""
        return self._about()[0]

    @property
    def fix(self):
        """How to fix the error, in one line."""
        return self._about()[1]


class ShapeError(Error, ValueError):
    """Sizes, strides or layouts that do not fit."""


class InvalidValueError(Error, ValueError):
    """An argument or a tensor element outside its domain."""


class UnsupportedError(Error, NotImplementedError):
    """The request is valid, but not supported here."""


class DeviceError(Error, RuntimeError):
    """The CUDA runtime or driver reported an error."""


class IoError(Error, OSError):
    """The operating system refused: open, read, write, rename, disk full."""


class FormatError(Error, ValueError):
    """A file whose content breaks its format."""


@contextmanager
def taken_from_transformers(folder, what):
    """Errors of transformers that cannot load a model, or a part of it, become a FormatError of one line."""
    try:
        yield
    except (Error, MemoryError):
        raise
    except Exception as no:
        if type(no).__name__ == "OutOfMemoryError":  # PyTorch's, of a GPU: nothing is wrong with the model
            raise
        lines = [line.strip() for line in str(no).splitlines() if line.strip()]
        reason = lines[0] if lines else type(no).__name__
        raise FormatError(f"{folder}: transformers cannot load {what}: {reason}") from no
