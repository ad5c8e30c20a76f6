"""Tests of arguments with a wrong type or value: an error names the argument before anything is read."""

import inspect
import sys

import numpy as np
import pytest

import nvfp4

COMMANDS = (nvfp4.quantize_checkpoint, nvfp4.convert, nvfp4.repair, nvfp4.verify, nvfp4.inspect,
            nvfp4.compare, nvfp4.sample)
PATHS = {"input", "output", "path", "source", "a", "b", "html", "against", "run", "statistics",
         "input_amax", "parts"}
LISTS = {"merge", "ignore", "include", "fuse"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arguments")
    nvfp4.sample(folder / "m", scale=1 / 64, layers=1)
    nvfp4.quantize_checkpoint(folder / "m", folder / "q")
    return folder


def good(function, folder):
    """Arguments with which it runs and writes nothing."""
    given = {name: folder / "q" for name in ("input", "path", "a", "b")}
    given |= {"input": folder / ("m" if function is nvfp4.quantize_checkpoint else "q"),
              "output": folder / "out", "to": "bf16", "dry_run": True}
    return {k: v for k, v in given.items() if k in inspect.signature(function).parameters}


@pytest.mark.parametrize("function", COMMANDS, ids=lambda f: f.__name__)
def test_errors_name_the_argument(function, folder):
    tried = 0
    for name, parameter in inspect.signature(function).parameters.items():
        wrong = [object(), 3.5, -1, 10**30, {1: 2}, np.zeros(3)]
        if parameter.default is inspect.Parameter.empty or name in LISTS:
            wrong.append(None)
        if name in PATHS:
            wrong += ["", "\0", b"", [1], True]
        if name in LISTS:
            wrong += ["mlp", [1]]
        if name in ("scale", "bits", "size"):  # 3.5 is one
            wrong = [float("nan"), -1, 10**30, "much", object()]
        for value in wrong:
            with pytest.raises((TypeError, nvfp4.InvalidValueError)) as error:
                function(**{**good(function, folder), name: value})
            assert str(error.value).removeprefix("sample: ").startswith(name), (name, value)
            assert len(str(error.value)) < 300
            assert not (folder / "out").exists()
            tried += 1
    assert tried >= 10


def test_none_is_no_path():
    with pytest.raises(TypeError, match="^path = None, must be a path$"):
        nvfp4.verify(None)


def test_a_path_may_be_bytes(folder):
    assert nvfp4.inspect(bytes(folder / "q"))["tensors"]


@pytest.mark.parametrize("function, arguments", [
    (nvfp4.convert, {"input": "org/tiny", "output": "s3://b/o", "to": "bf16"}),
    (nvfp4.repair, {"path": "org/tiny", "output": "s3://b/o"}),
    (nvfp4.repair, {"path": "org/tiny", "output": "o", "source": "s3://b/o"}),
    (nvfp4.compare, {"a": "org/tiny", "b": "q", "html": "s3://b/p.html"}),
    (nvfp4.verify, {"path": "org/tiny", "parts": "s3://b/parts"})])
def test_store_addresses_download_nothing(function, arguments, monkeypatch):
    monkeypatch.setattr("nvfp4._checkpoint.download_model", lambda name: pytest.fail("is downloaded"))
    with pytest.raises(nvfp4.UnsupportedError, match="is an address"):
        function(**arguments)


def calls():
    """Functions of arrays, with arguments that they take."""
    generator = np.random.default_rng(5)
    x, w = (generator.standard_normal((rows, 64), dtype=np.float32) for rows in (4, 32))
    q, ones = nvfp4.quantize(w), np.ones(64, np.float32)
    packed = nvfp4.pack_weights(q)
    a, a_sf = nvfp4.nvfp4_quantize(x, 100.0)
    b, b_sf = nvfp4.nvfp4_quantize(w, 100.0)
    return [
        (nvfp4.quantize, {"x": x}), (nvfp4.amax, {"x": x}), (nvfp4.global_scales, {"x": x}),
        (nvfp4.dequantize, {"q": q}), (nvfp4.quantization_error, {"x": w, "q": q}),
        (nvfp4.relayout_scales, {"q": q, "layout": "tiled_128x4"}),
        (nvfp4.gemm, {"x": x, "w": packed}), (nvfp4.plan_gemm, {"w": packed, "rows": 4}),
        (nvfp4.unpack_weights, {"w": packed}),
        (nvfp4.mm_fp4, {"a": a, "b": b.T, "a_descale": a_sf, "b_descale": b_sf.T}),
        (nvfp4.grouped_mm_fp4, {"a": a, "b": b[None], "a_descale": a_sf, "b_descale": b_sf[None],
                                "m_indptr": [0, 4]}),
        (nvfp4.nvfp4_quantize, {"a": x, "a_global_sf": 1.0}),
        (nvfp4.block_scale_interleave, {"unswizzled_sf": q.scales}),
        (nvfp4.rmsnorm_fp4quant, {"input": x, "weight": ones}),
        (nvfp4.add_rmsnorm_fp4quant, {"input": x, "residual": x.copy(), "weight": ones}),
        (nvfp4.silu_and_mul_nvfp4_quantize, {"input": x, "global_scale": 1.0}),
        (nvfp4.e2m1_and_ufp8sf_scale_to_float, {"e2m1_tensor": a, "ufp8_scale_tensor": a_sf})]


@pytest.mark.parametrize("function, given", calls(), ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("value", [object(), {1: 2}, lambda: 1], ids=["object", "dict", "function"])
def test_functions_of_arrays_name_the_argument(function, given, value):
    function(**given)
    refused = 0
    for name in inspect.signature(function).parameters:
        try:
            function(**{**given, name: value})  # some are there for compatibility only
        except Exception as error:
            assert str(error).startswith(name), (name, error)
            assert isinstance(error, (TypeError, nvfp4.Error)), name
            refused += 1
    assert refused >= len(given)


def test_an_argument_that_is_right_is_not_named():
    x, w = np.ones((4, 64), np.float32), np.ones((32, 64), np.float32)
    packed = nvfp4.pack_weights(nvfp4.quantize(w))
    a, a_sf = nvfp4.nvfp4_quantize(x, 1.0)
    with pytest.raises(nvfp4.ShapeError, match="K = 60"):
        nvfp4.nvfp4_quantize(x[:, :60], 1.0, nvfp4.SfLayout.layout_linear)
    for call in (lambda **k: nvfp4.mm_fp4(a, packed, a_sf, None, **k),
                 lambda **k: nvfp4.grouped_mm_fp4(a, packed, a_sf, None, [0, 4], **k)):
        call(out_dtype="float32")
        with pytest.raises(nvfp4.UnsupportedError, match="block_size|sf_vec_size"):
            call(block_size=32)


def test_every_global_scale_says_which_way_it_goes():
    """The docstring of each public function names the sense of its global scales."""
    for name in nvfp4.__all__:
        function = getattr(nvfp4, name)
        if not inspect.isfunction(function):
            continue
        for parameter in inspect.signature(function).parameters:
            if parameter in ("global_scale", "a_global_sf", "global_scale_tensor") or (
                    parameter == "alpha" and name.endswith("mm_fp4")):
                after = function.__doc__.split(parameter, 1)[1]
                assert "MULTIPLIER" in after or "DIVISOR" in after, (name, parameter)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="nanobind needs Python 3.12 for it")
def test_the_module_uses_the_stable_abi():
    assert nvfp4._core.__file__.endswith(".abi3.so")
