"""Arguments that cannot be taken: errors that name them, and no memory of others read or written."""

import numpy as np
import pytest

import nvfp4
from reference import normal

X, W = normal(1, 4, 64), normal(2, 32, 64)


def test_rows_backwards_are_refused_and_touch_nothing():
    memory = np.zeros((12, 64), np.float32)
    q = nvfp4.quantize(X)
    for columns in (64, 1):
        backwards = memory[4:8, :columns][::-1]
        with pytest.raises(nvfp4.ShapeError, match="must not be negative"):
            nvfp4.amax(backwards)
    with pytest.raises(nvfp4.ShapeError, match="must not be negative"):
        nvfp4.quantize(memory[4:8][::-1])
    with pytest.raises(nvfp4.ShapeError, match="out has .* must not be negative"):
        nvfp4.dequantize(q, out=memory[4:8][::-1])
    with pytest.raises(nvfp4.ShapeError, match="out has .* must not be negative"):
        nvfp4.gemm(X, nvfp4.pack_weights(nvfp4.quantize(W)), out=memory[4:8, :32][::-1])
    assert not memory.any()
