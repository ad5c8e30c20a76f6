"""Arrays of NumPy, PyTorch, CuPy and JAX: their dtype and device, and how to allocate more.

Nothing here copies an array that the caller gave.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys

import numpy as np

from . import _core
from ._errors import ShapeError, UnsupportedError
from ._types import Function

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
    """Returns the name of a dtype of PyTorch, JAX or NumPy, such as 'bfloat16'. A name is returned as it is."""
    if isinstance(dtype, str):
        name = dtype
    elif type(dtype).__module__ == "torch":
        name = str(dtype)
    else:
        name = np.dtype(dtype).name
    return name.removeprefix("torch.")


def _as_numpy(x):
    """Returns a NumPy view of an object that exports CPU memory."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return np.from_dlpack(x)
    return np.asarray(x)


class Exported:
    """An array of a GPU as the extension module takes it. Each look at it exports anew, since a capsule serves once.
    Stream -1 asks DLPack for no synchronization; ours runs on the stream that the caller names."""

    def __init__(self, array, stream=-1):
        self._array, self._stream = array, stream

    def __dlpack__(self, **_):
        return self._array.__dlpack__(stream=self._stream)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class NumPy:
    """NumPy, and other objects that export CPU memory: memoryview, array.array, ..."""

    def require(self, name, x, written):
        """Raises errors that the extension module could not word as well."""
        x = _as_numpy(x)
        if not x.dtype.isnative:
            raise TypeError(f"{name}.dtype = '{x.dtype.str}', must be in this machine's byte order")
        if written and not x.flags.writeable:
            raise TypeError(f"{name} is read-only, must be writable")

    def view(self, x):
        """Returns `x` in the form that the extension module takes, and the name of its dtype."""
        x = _as_numpy(x)
        name = x.dtype.name
        if name == "bfloat16":  # neither NumPy's DLPack nor the buffer protocol has bfloat16
            return x.view(np.uint16), name
        return (x.view(np.uint8) if name == "float8_e4m3fn" else x), name

    def memory(self, x):
        """Returns address, shape, strides in bytes and bytes per element."""
        x = _as_numpy(x)
        return x.__array_interface__["data"][0], x.shape, x.strides, x.itemsize

    def empty(self, shape, dtype, like):
        """Returns an uninitialized array for the module to write. finish() makes it the array that the caller gets."""
        if dtype in ("bfloat16", "float8_e4m3fn"):
            dtype = getattr(_ml_dtypes(), dtype)
        return np.empty(shape, dtype)

    def finish(self, x):
        return x

    def paired(self, codes):
        """Returns packed codes in the framework's dtype for two E2M1 values per byte, if it has one."""
        return codes

    def clear(self, x, first):
        """Sets the rows from `first` on of an array of empty() to zero."""
        x[first:] = 0

    def constant(self, value, count, like):
        """Returns a float32 array [count] on the device of `like`, with equal elements."""
        return np.full(count, value, np.float32)

    def floats(self, x, like):
        """Returns x as float32 of one dimension on the device of `like`. Copies only if needed."""
        return np.ascontiguousarray(x, np.float32).reshape(-1)

    def host_floats(self, x):
        """Returns x as contiguous float32 of one dimension on the CPU."""
        return np.ascontiguousarray(x, np.float32).reshape(-1)

    def aligned(self, x):
        """Returns x, or a copy if x does not begin at a multiple of 16 bytes, the unit of GPU loads."""
        return x

    def is_cuda(self, x):
        return False

    def to(self, x, device):
        """Returns x on a device. Raises TypeError for a dtype."""
        if str(device) != (own := str(getattr(x, "device", "cpu"))):
            raise TypeError(f"device = {device!r}, must be {own}: only tensors of PyTorch move to other devices")
        return x

    def host_bytes(self, x):
        """Returns the bytes of x as a NumPy array of one dimension."""
        return np.ascontiguousarray(_as_numpy(x)).reshape(-1).view(np.uint8)

    def stream(self, x, stream):
        """Returns the cudaStream_t for work on x, as an integer."""
        return 0

    def using(self, x, stream):
        """Returns a context in which the framework's own work also runs on `stream`."""
        return contextlib.nullcontext()

    def device_pairs(self, multiplier, divisor, like):
        """Returns float32 [n, 2] on the device of `like`: multipliers and divisors. One of the arguments may be
        None."""
        m, d = (None if g is None else self.floats(g, like) for g in (multiplier, divisor))
        return self.stack((1.0 / d if m is None else m, 1.0 / m if d is None else d))


class Torch(NumPy):
    def require(self, name, x, written):
        torch = sys.modules["torch"]
        if x.layout is not torch.strided:
            raise UnsupportedError(f"{name}.layout = {x.layout}, must be torch.strided")
        if x.device.type not in ("cpu", "cuda"):
            raise UnsupportedError(f"{name}.device = {x.device}, must be cpu or cuda")

    def view(self, x):
        torch = sys.modules["torch"]
        name = dtype_name(x.dtype)
        x = x.detach()
        if name in ("float8_e4m3fn", "float4_e2m1fn_x2"):
            x = x.view(torch.uint8)
        return (Exported(x) if x.is_cuda else x), name

    def memory(self, x):
        size = x.element_size()
        return x.data_ptr(), tuple(x.shape), tuple(size * n for n in x.stride()), size

    def empty(self, shape, dtype, like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)

    def paired(self, codes):
        dtype = getattr(sys.modules["torch"], "float4_e2m1fn_x2", None)
        return codes.view(dtype) if dtype else codes

    def constant(self, value, count, like):
        torch = sys.modules["torch"]
        return torch.full((count,), value, dtype=torch.float32, device=like.device)

    def floats(self, x, like):
        torch = sys.modules["torch"]
        return torch.as_tensor(x).detach().to(like.device, torch.float32).reshape(-1).contiguous()

    def ints(self, x, like):
        """Returns x as int32 of one dimension on the device of `like`. Copies only if needed."""
        torch = sys.modules["torch"]
        return torch.as_tensor(x).to(like.device, torch.int32).reshape(-1).contiguous()

    def host_floats(self, x):
        torch = sys.modules["torch"]
        return x.detach().to("cpu", torch.float32).reshape(-1).numpy()

    def aligned(self, x):
        return x if x.data_ptr() % 16 == 0 else x.clone()

    def is_cuda(self, x):
        return x.is_cuda

    def to(self, x, device):
        try:
            return x.to(sys.modules["torch"].device(device))
        except (RuntimeError, TypeError) as wrong:
            raise TypeError(f"device = {device!r}, must be a device: {wrong}") from None

    def host_bytes(self, x):
        return x.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy()

    def stream(self, x, stream):
        if not x.is_cuda:
            return 0
        torch = sys.modules["torch"]
        return torch.cuda.current_stream(x.device).cuda_stream if stream is None else stream

    def using(self, x, stream):
        if not x.is_cuda:
            return contextlib.nullcontext()
        cuda = sys.modules["torch"].cuda
        return cuda.stream(cuda.ExternalStream(stream, x.device) if stream
                           else cuda.default_stream(x.device))

    def stack(self, parts):
        return sys.modules["torch"].stack(parts, dim=-1)

    def concatenate(self, parts):
        return sys.modules["torch"].cat(parts)

    def repeat(self, x, count):
        return x.repeat(count)


class CuPy(NumPy):
    def require(self, name, x, written):
        pass

    def view(self, x):
        name = x.dtype.name
        if name == "bfloat16":
            x = x.view(np.uint16)
        elif name == "float8_e4m3fn":
            x = x.view(np.uint8)
        return Exported(x), name

    def memory(self, x):
        return x.data.ptr, x.shape, x.strides, x.itemsize

    def empty(self, shape, dtype, like):
        cupy = sys.modules["cupy"]
        if dtype in ("bfloat16", "float8_e4m3fn"):
            dtype = getattr(_ml_dtypes(), dtype)
        try:
            with like.device:
                return cupy.empty(shape, dtype)
        except (TypeError, ValueError, NotImplementedError) as no:
            raise UnsupportedError(f"this CuPy has no {np.dtype(dtype).name}: {no}") from no

    def constant(self, value, count, like):
        with like.device:
            return sys.modules["cupy"].full(count, value, np.float32)

    def floats(self, x, like):
        with like.device:
            return sys.modules["cupy"].ascontiguousarray(
                sys.modules["cupy"].asarray(x, np.float32).reshape(-1))

    def ints(self, x, like):
        with like.device:
            return sys.modules["cupy"].ascontiguousarray(
                sys.modules["cupy"].asarray(x, np.int32).reshape(-1))

    def host_floats(self, x):
        return np.ascontiguousarray(x.get(), np.float32).reshape(-1)

    def aligned(self, x):
        return x if x.data.ptr % 16 == 0 else x.copy()

    def is_cuda(self, x):
        return True

    def host_bytes(self, x):
        return super().host_bytes(x.get())

    def stream(self, x, stream):
        if stream is not None:
            return stream
        return sys.modules["cupy"].cuda.get_current_stream().ptr

    def using(self, x, stream):
        cuda = sys.modules["cupy"].cuda
        return cuda.ExternalStream(stream, x.device.id) if stream else cuda.Stream.null

    def stack(self, parts):
        return sys.modules["cupy"].stack(parts, axis=-1)

    def concatenate(self, parts):
        return sys.modules["cupy"].concatenate(parts)

    def repeat(self, x, count):
        return sys.modules["cupy"].tile(x, count)


class _Memory:
    """Memory of the library that becomes a JAX array."""

    def __init__(self, shape, dtype, device):
        self.shape, self.dtype = tuple(int(n) for n in shape), dtype
        self.array = _core.allocate(self.shape, dtype, device)
        self.device = device


class Jax(NumPy):
    """Outside jit. Results are written into memory of the library that JAX then takes over. On a GPU
    work goes to the default stream, and the host waits for the arrays that go in and for those that
    come out: JAX does not say which stream is its own."""

    def require(self, name, x, written):
        if written and not isinstance(x, _Memory):
            raise UnsupportedError(f"{name} is a JAX array, which cannot be changed in place")

    def view(self, x):
        if isinstance(x, _Memory):
            return x.array, x.dtype
        if self.is_cuda(x):
            x.block_until_ready()
            return Exported(x, stream=None), x.dtype.name
        return x, x.dtype.name

    def _device(self, x):
        return f"cuda:{x.__dlpack_device__()[1]}" if self.is_cuda(x) else "cpu"

    def empty(self, shape, dtype, like):
        return _Memory(shape, dtype, like.device if isinstance(like, _Memory)
                       else self._device(like))

    def finish(self, x):
        if not isinstance(x, _Memory):
            return x
        jax = sys.modules["jax"]
        if math.prod(x.shape) == 0:
            return jax.numpy.empty(x.shape, x.dtype)
        if x.device != "cpu":
            _core.synchronize(x.device)
        return jax.dlpack.from_dlpack(x.array)

    def clear(self, x, first):
        pass  # the library allocates zeros

    def constant(self, value, count, like):
        return self.floats(np.full(count, value, np.float32), like)

    def _put(self, x, like, dtype):
        jax = sys.modules["jax"]
        values = jax.numpy.asarray(x, dtype).reshape(-1)
        if isinstance(like, _Memory):
            return values
        return jax.device_put(values, next(iter(like.devices())))

    def floats(self, x, like):
        return self._put(x, like, "float32")

    def ints(self, x, like):
        return self._put(x, like, "int32")

    def host_floats(self, x):
        return np.ascontiguousarray(np.asarray(x), np.float32).reshape(-1)

    def is_cuda(self, x):
        if isinstance(x, _Memory):
            return x.device != "cpu"
        return next(iter(x.devices())).platform in ("gpu", "cuda")

    def stream(self, x, stream):
        if stream:
            raise UnsupportedError(f"stream = {stream}, must not be given with JAX arrays")
        return 0

    def stack(self, parts):
        return sys.modules["jax"].numpy.stack(parts, axis=-1)

    def concatenate(self, parts):
        return sys.modules["jax"].numpy.concatenate(parts)

    def repeat(self, x, count):
        return sys.modules["jax"].numpy.tile(x, count)


_NUMPY, _TORCH, _CUPY, _JAX = NumPy(), Torch(), CuPy(), Jax()
_FRAMEWORKS = {"torch": _TORCH, "cupy": _CUPY, "jax": _JAX, "jaxlib": _JAX}


def framework(x):
    """Returns the framework of `x`, also if x is of a subclass of its arrays."""
    if isinstance(x, np.ndarray):
        return _NUMPY
    if isinstance(x, _Memory):
        return _JAX
    for base in type(x).__mro__:
        found = _FRAMEWORKS.get(base.__module__.partition(".")[0])
        if found is not None:
            return found
    return _NUMPY


def operand(name, x, dtypes, written=False):
    """Returns `x` in the form that the extension module takes. Raises TypeError unless its dtype is one of `dtypes`, or
    if `written` and x is read-only."""
    kind = framework(x)
    kind.require(name, x, written)
    array, dtype = kind.view(x)
    if dtype not in dtypes:
        raise TypeError(f"{name}.dtype = {dtype}, must be {' or '.join(dtypes)}")
    return array


def matrix(name, x, written=False):
    return operand(name, x, FLOATS, written)


def codes_or_scales(name, x, written=False):
    return operand(name, x, ("uint8", "float8_e4m3fn", "float4_e2m1fn_x2"), written)


def floats(name, x, written=False):
    return operand(name, x, ("float32",), written)


def integers(name, x):
    return operand(name, x, ("int32",))


def dtype_of(x):
    """Returns the name of the dtype of x, also if x only exports memory."""
    return framework(x).view(x)[1]


def is_contiguous(x):
    """Reports whether the elements are contiguous in row-major order. Arrays that cannot tell count as contiguous."""
    if hasattr(x, "is_contiguous"):
        return x.is_contiguous()
    return getattr(getattr(x, "flags", None), "c_contiguous", True)


def two_dimensions(name, x):
    """Returns the shape of x. Raises ShapeError unless it has two dimensions."""
    shape = shape_of(x)
    if len(shape) != 2:
        raise ShapeError(f"{name} has shape {list(shape)}, must have two dimensions")
    return shape


def host_integers(name, x):
    """Returns the elements of x as a list of int."""
    if hasattr(x, "__cuda_array_interface__"):  # waits for the GPU; NumPy reads arrays of JAX
        bring = getattr(x, "cpu", None) or getattr(x, "get", None)
        x = bring() if bring else x
    values = np.asarray(x).reshape(-1)
    if values.size and values.dtype.kind not in "iu":
        raise TypeError(f"{name}.dtype = {values.dtype.name}, must be integers")
    return values.tolist()


def shape_of(x):
    return tuple(int(n) for n in (x.shape if hasattr(x, "shape") else _as_numpy(x).shape))


def given(name, x):
    """Returns x. Raises TypeError for None and strings, which NumPy would turn into NaN or reject without a name."""
    if x is None or isinstance(x, (str, bytes)):
        raise TypeError(f"{name} = {x!r}, must be a number or an array")
    return x


def number(name, x):
    """Returns a number, or the element of an array of one element on any device, as a float."""
    if isinstance(given(name, x), (int, float)):
        return float(x)
    values = framework(x).host_floats(x)
    if values.size != 1:
        raise TypeError(f"{name} has {values.size} elements, must have one")
    return float(values[0])


def on_stream(function: Function) -> Function:
    """Decorates a function with `stream=`: the framework's own work inside it, such as allocations, also runs on that
    stream."""
    first = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def call(*args, stream=None, **others):
        if stream is None:
            return function(*args, **others)
        x = args[0] if args else others[first]
        x = getattr(x, "codes", x)
        with framework(x).using(x, stream):
            return function(*args, stream=stream, **others)

    return call
