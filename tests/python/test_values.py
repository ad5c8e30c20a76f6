"""QuantizedTensor and PackedWeights as values: copied, moved, compared, pickled, indexed."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import nvfp4
from reference import normal

torch = pytest.importorskip("torch")

ARRAYS = {"numpy": lambda x: x, "torch": torch.from_numpy}


def quantized(framework="numpy", shape=(6, 64), **options):
    return nvfp4.quantize(ARRAYS[framework](normal(1, *shape).astype(np.float32)), **options)


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("options", ({}, {"scope": "vector"}, {"layout": "tiled_128x4"}, {"axis": "columns"}))
@pytest.mark.parametrize("copied", (copy.deepcopy, copy.copy, nvfp4.QuantizedTensor.clone,
                                    lambda q: pickle.loads(pickle.dumps(q)), lambda q: q.to("cpu")))
def test_copies_are_equal(framework, options, copied):
    q = quantized(framework, (64, 64), **options)
    other = copied(q)
    assert (q == other) is True and (q != other) is False and type(other.codes) is type(q.codes)


def test_a_clone_has_memory_of_its_own():
    for framework in ARRAYS:
        q = quantized(framework)
        for part in ("codes", "scales", "global_scale"):
            other = q.clone()
            getattr(other, part)[0] = 3
            assert (q == other) is False, part


@pytest.mark.parametrize("other", (
    quantized(shape=(5, 64)), quantized(method="max"), quantized(scope="vector"), 3, None,
    dataclasses.replace(quantized(), shape=(2, 3, 64)), dataclasses.replace(quantized(), layout="tiled_128x4")))
def test_different_values_are_unequal(other):
    assert (quantized() == other) is False


def test_equality_compares_values_of_frameworks():
    assert quantized("numpy") == quantized("torch", scale_dtype="float8_e4m3fn")


def test_attributes_tell_device_and_size():
    q = quantized()
    assert (q.device, q.shape, q.nbytes) == ("cpu", (6, 64), 6 * 32 + 6 * 4 + 4)
    assert quantized("torch").device == torch.device("cpu")
    assert repr(q) == "QuantizedTensor(shape=(6, 64), device='cpu')"
    assert repr(quantized("torch", scope="vector")) == "QuantizedTensor(shape=(6, 64), device='cpu', scope='vector')"


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("device", (torch.float32, np.float32, "float32", torch.bfloat16, None, 3.5))
def test_to_rejects_what_is_no_device(framework, device):
    with pytest.raises(TypeError, match="device = "):
        quantized(framework).to(device)


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("scope", ("tensor", "vector"))
@pytest.mark.parametrize("rows", (0, -1, slice(1, 4), slice(None, None, 2), [3, 0], [True, False] * 3))
def test_rows_are_those_of_the_matrix(framework, scope, rows):
    for shape in ((6, 64), (6, 3, 32)):
        q = quantized(framework, shape, scope=scope)
        part = q[rows]
        assert np.array_equal(part.dequantize(), q.dequantize()[rows])
        assert part.shape == tuple(part.dequantize().shape)


@pytest.mark.parametrize("options, index, error, message", (
    ({}, (0, 1), TypeError, "index = "),
    ({}, 6, IndexError, "index"),
    ({"shape": (64,)}, 0, nvfp4.ShapeError, "one row"),
    ({"layout": "tiled_128x4"}, 0, nvfp4.UnsupportedError, "relayout_scales"),
    ({"shape": (64, 64), "axis": "columns"}, 0, nvfp4.UnsupportedError, "axis 'rows'")))
def test_other_indices_are_refused(options, index, error, message):
    with pytest.raises(error, match=message):
        quantized(**options)[index]


@pytest.mark.parametrize("framework", ARRAYS)
@pytest.mark.parametrize("options", ({}, {"groups": 2}, {"gate_up": 0}))
@pytest.mark.parametrize("copied", (copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))))
def test_packed_weights_are_copied_and_pickled(framework, options, copied):
    w = nvfp4.pack_weights(quantized(framework, (32, 64), scope="vector"), **options)
    other, x = copied(w), normal(2, 3, 64).astype(np.float32)
    epilogue = "swiglu" if "gate_up" in options else "none"
    assert np.array_equal(nvfp4.gemm(x, other, epilogue=epilogue), nvfp4.gemm(x, w, epilogue=epilogue))
    assert repr(other) == repr(w) and not np.shares_memory(np.asarray(other.data), np.asarray(w.data))
