"""Arrays of NumPy, PyTorch, CuPy and JAX: what they are, where they lie, how to make more of them.

Nothing here copies an array that the caller gave.
"""

import sys

import numpy as np

from ._errors import UnsupportedError

FLOATS = ("float32", "float16", "bfloat16")


def _ml_dtypes():
    try:
        import ml_dtypes
    except ImportError as missing:
        raise UnsupportedError(
            f"{missing.name} is not installed: NumPy has no bfloat16 or float8_e4m3fn without it"
        ) from missing
    return ml_dtypes


def dtype_name(dtype):
    """'bfloat16' for torch.bfloat16, jnp.bfloat16, a NumPy dtype, or the name itself."""
    if isinstance(dtype, str):
        name = dtype
    elif type(dtype).__module__ == "torch":
        name = str(dtype)
    else:
        name = np.dtype(dtype).name
    return name.removeprefix("torch.")


class NumPy:
    """Also the framework of whatever else exports CPU memory: memoryview, array.array, ..."""

    def view(self, x):
        """`x` as the extension module takes it, and the name of its dtype."""
        if not isinstance(x, np.ndarray):
            x = np.asarray(x)
        name = x.dtype.name
        if name == "bfloat16":  # not in DLPack as NumPy writes it, nor in the buffer protocol
            return x.view(np.uint16), name
        return (x.view(np.uint8) if name == "float8_e4m3fn" else x), name

    def empty(self, shape, dtype, like):
        if dtype in ("bfloat16", "float8_e4m3fn"):
            dtype = getattr(_ml_dtypes(), dtype)
        return np.empty(shape, dtype)

    def finish(self, x):
        """What the caller gets of an array made by empty()."""
        return x

    def host_floats(self, x):
        """Contiguous float32 on the CPU."""
        return np.ascontiguousarray(x, np.float32).reshape(-1)

    def is_cuda(self, x):
        return False

    def stream(self, x, stream):
        return 0


class Torch:
    def view(self, x):
        torch = sys.modules["torch"]
        name = dtype_name(x.dtype)
        x = x.detach()
        if name in ("float8_e4m3fn", "float4_e2m1fn_x2"):
            x = x.view(torch.uint8)
        # Stream -1: no synchronization by DLPack; ours runs on the stream that the caller names.
        return (x.__dlpack__(stream=-1) if x.is_cuda else x), name

    def empty(self, shape, dtype, like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)

    def finish(self, x):
        return x

    def host_floats(self, x):
        torch = sys.modules["torch"]
        return x.detach().to("cpu", torch.float32).reshape(-1).numpy()

    def is_cuda(self, x):
        return x.is_cuda

    def stream(self, x, stream):
        if not x.is_cuda:
            return 0
        torch = sys.modules["torch"]
        return torch.cuda.current_stream(x.device).cuda_stream if stream is None else stream

    def device_pairs(self, multiplier, divisor):
        """[n, 2] float32 on the device: multiplier and divisor, one of which is None."""
        torch = sys.modules["torch"]
        given = (divisor if multiplier is None else multiplier).detach()
        given = given.to(torch.float32).reshape(-1)
        pair = (1.0 / given, given) if multiplier is None else (given, 1.0 / given)
        return torch.stack(pair, dim=-1)


class CuPy:
    def view(self, x):
        name = x.dtype.name
        if name == "bfloat16":
            x = x.view(np.uint16)
        elif name == "float8_e4m3fn":
            x = x.view(np.uint8)
        return x.__dlpack__(stream=-1), name

    def empty(self, shape, dtype, like):
        cupy = sys.modules["cupy"]
        if dtype in ("bfloat16", "float8_e4m3fn"):
            dtype = getattr(_ml_dtypes(), dtype)
        with like.device:
            return cupy.empty(shape, dtype)

    def finish(self, x):
        return x

    def host_floats(self, x):
        return np.ascontiguousarray(x.get(), np.float32).reshape(-1)

    def is_cuda(self, x):
        return True

    def stream(self, x, stream):
        if stream is not None:
            return stream
        return sys.modules["cupy"].cuda.get_current_stream().ptr

    def device_pairs(self, multiplier, divisor):
        cupy = sys.modules["cupy"]
        given = (divisor if multiplier is None else multiplier).astype(np.float32).reshape(-1)
        pair = (1.0 / given, given) if multiplier is None else (given, 1.0 / given)
        return cupy.stack(pair, axis=-1)


class Jax:
    """On the CPU. Results are written into NumPy memory that JAX then takes over."""

    _ALIGNMENT = 64  # what XLA asks of memory that it does not copy

    def view(self, x):
        name = x.dtype.name
        if self.is_cuda(x):
            raise UnsupportedError("JAX arrays on a GPU are not supported; those on the CPU are")
        if name == "float8_e4m3fn":
            x = x.view("uint8")
        return x, name

    def empty(self, shape, dtype, like):
        dtype = np.dtype(getattr(_ml_dtypes(), dtype)
                         if dtype in ("bfloat16", "float8_e4m3fn") else dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = np.empty(size + self._ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % self._ALIGNMENT
        return memory[begin:begin + size].view(dtype).reshape(shape)

    def finish(self, x):
        jnp = sys.modules["jax"].numpy
        if x.dtype.name in ("bfloat16", "float8_e4m3fn") or x.size == 0:
            return jnp.asarray(x)
        return sys.modules["jax"].dlpack.from_dlpack(x)

    def host_floats(self, x):
        return np.ascontiguousarray(np.asarray(x), np.float32).reshape(-1)

    def is_cuda(self, x):
        return next(iter(x.devices())).platform in ("gpu", "cuda")

    def stream(self, x, stream):
        return 0


_NUMPY, _TORCH, _CUPY, _JAX = NumPy(), Torch(), CuPy(), Jax()
_FRAMEWORKS = {"torch": _TORCH, "cupy": _CUPY, "jax": _JAX, "jaxlib": _JAX}


def framework(x):
    """The framework that `x` is of, or that a subclass of its arrays derives from."""
    if isinstance(x, np.ndarray):
        return _NUMPY
    for base in type(x).__mro__:
        found = _FRAMEWORKS.get(base.__module__.partition(".")[0])
        if found is not None:
            return found
    return _NUMPY


def operand(name, x, dtypes):
    """`x` as the extension module takes it; TypeError unless its dtype is one of `dtypes`."""
    array, dtype = framework(x).view(x)
    if dtype not in dtypes:
        raise TypeError(f"{name}.dtype = {dtype}, must be {' or '.join(dtypes)}")
    return array


def matrix(name, x):
    return operand(name, x, FLOATS)


def codes_or_scales(name, x):
    return operand(name, x, ("uint8", "float8_e4m3fn", "float4_e2m1fn_x2"))


def floats(name, x):
    return operand(name, x, ("float32",))


def shape_of(x):
    return tuple(int(n) for n in (x.shape if hasattr(x, "shape") else np.asarray(x).shape))


def number(name, x):
    """A Python float from a number or an array of one element on any device."""
    if isinstance(x, (int, float)):
        return float(x)
    values = framework(x).host_floats(x)
    if values.size != 1:
        raise TypeError(f"{name} has {values.size} elements, must have one")
    return float(values[0])
