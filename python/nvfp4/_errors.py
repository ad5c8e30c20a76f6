"""What nvfp4 raises. Each class is also the built-in exception that fits best."""


class Error(Exception):
    """Base of everything that nvfp4 raises; the message names argument, value and rule."""


class ShapeError(Error, ValueError):
    """Sizes, strides or layouts that do not fit."""


class InvalidValueError(Error, ValueError):
    """An argument or a tensor element outside its domain."""


class UnsupportedError(Error, NotImplementedError):
    """A valid request that nothing here can carry out."""


class DeviceError(Error, RuntimeError):
    """The CUDA runtime or driver refused."""


class IoError(Error, OSError):
    """The operating system refused: open, read, write, rename, disk full."""


class FormatError(Error, ValueError):
    """A file whose content breaks its format."""
