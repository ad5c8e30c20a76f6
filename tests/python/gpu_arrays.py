"""Arrays of PyTorch, CuPy and JAX on a GPU, why there are none, and what a product there may be off."""

import os

import numpy as np
import pytest

import nvfp4

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX shares the GPU with PyTorch
GPUS = nvfp4.devices()
REASON = ("no GPU to run on" if not GPUS else
          GPUS[0]["reason"] if not GPUS[0]["available"] else "")
on_some_gpu = pytest.mark.skipif(bool(REASON), reason=REASON or "-")
needs_products = pytest.mark.skipif(
    not GPUS or int(GPUS[0]["architecture"].removeprefix("sm_")) < 80,
    reason="products run on GPUs from sm_80 on")


class Torch:
    def __init__(self):
        self.module = pytest.importorskip("torch")
        if not self.module.cuda.is_available():
            pytest.skip("this PyTorch has no GPU")

    def put(self, x, dtype=None):
        x = self.module.from_numpy(np.ascontiguousarray(x)).cuda()
        return x if dtype is None else x.to(getattr(self.module, dtype))

    def get(self, x):
        """Floats as float32, everything else as bytes."""
        packed = getattr(self.module, "float4_e2m1fn_x2", None)
        if x.dtype in (self.module.uint8, self.module.float8_e4m3fn, packed):
            return x.view(self.module.uint8).cpu().numpy()
        return x.float().cpu().numpy()

    def is_array(self, x):
        return isinstance(x, self.module.Tensor) and x.is_cuda


class CuPy:
    def __init__(self):
        self.module = pytest.importorskip("cupy")

    def put(self, x, dtype=None):
        if dtype == "bfloat16":
            dtype = pytest.importorskip("ml_dtypes").bfloat16
            try:
                return self.module.asarray(x.astype(dtype).view(np.uint16)).view(dtype)
            except (TypeError, ValueError) as no:
                pytest.skip(f"this CuPy has no bfloat16: {no}")
        return self.module.asarray(x if dtype is None else x.astype(dtype))

    def get(self, x):
        if x.dtype.itemsize == 1:
            return x.view(np.uint8).get()
        return x.get().astype(np.float32)

    def is_array(self, x):
        return isinstance(x, self.module.ndarray)


class Jax:
    def __init__(self):
        self.module = pytest.importorskip("jax")
        try:
            self.device = self.module.devices("gpu")[0]
        except RuntimeError:
            pytest.skip("this JAX has no GPU")

    def put(self, x, dtype=None):
        x = self.module.device_put(self.module.numpy.asarray(x), self.device)
        return x if dtype is None else x.astype(dtype)

    def get(self, x):
        if x.dtype.itemsize == 1:
            return np.asarray(x).view(np.uint8)
        return np.asarray(x).astype(np.float32)

    def is_array(self, x):
        return isinstance(x, self.module.Array) and next(iter(x.devices())) == self.device


@pytest.fixture(params=[Torch, CuPy, Jax], ids=["torch", "cupy", "jax"])
def on_gpu(request):
    return request.param()


UNIT = 2.0**-24
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}


def rounded(x, dtype):
    """float32 values that `dtype` has."""
    if dtype != "bfloat16":
        return x.astype(dtype).astype(np.float32)
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def within_bound(y, a, b, factor, dtype="float32", bias=0):
    """tests/fragment_cases.h: tensor cores truncate where they add 16 products to a sum."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    exact, norm = a @ b.T, np.abs(a) @ np.abs(b).T
    # And where b is e2m1 · scale · global_scale in FP32, it was rounded.
    bound = (2 * UNIT * abs(factor) * ((a.shape[1] * 17 / 16 + 1) * norm + 4 * np.abs(exact))
             + (UNIT + ROUNDING[dtype]) * np.abs(factor * exact + bias))
    assert y.shape == exact.shape
    assert np.all(np.abs(y - (factor * exact + bias)) <= 1.01 * bound + 2.0**-25)
