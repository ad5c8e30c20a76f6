"""quantize, dequantize and what belongs to them, on NumPy arrays."""

import threading

import numpy as np
import pytest

import nvfp4
from reference import decode, divisor, normal, tile_128x4

SHAPES = [(1, 16), (3, 48), (7, 16), (129, 272), (2, 3, 64), (32,), (0, 32)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", nvfp4.method_names())
def test_dequantize_is_the_formula(shape, method):
    x = normal(len(shape), *shape)
    q = nvfp4.quantize(x, method)
    y = nvfp4.dequantize(q)
    assert q.codes.shape == (*shape[:-1], shape[-1] // 2) and y.shape == shape
    np.testing.assert_array_equal(y, decode(q.codes, q.scales, q.global_scale))
    if x.size:
        # The widest gap of E2M1 is 2 of 6: half of it, and the rounding of the scale.
        assert np.abs(y - x).max() <= np.abs(x).max() / 5


@pytest.mark.parametrize("seed", range(5))
def test_better_quantizers_lose_less(seed):
    x = normal(seed, 64, 256)
    error = {}
    for method in nvfp4.method_names():
        q = nvfp4.quantize(x, method)
        error[method], norm = nvfp4.quantization_error(x, q)
        y = nvfp4.dequantize(q).astype(np.float64)
        assert error[method] == pytest.approx(np.sum((x - y) ** 2), rel=1e-5)
        assert norm == pytest.approx(np.sum(x.astype(np.float64) ** 2), rel=1e-5)
    assert error["mse"] < error["four_over_six"] < error["max"]


def test_rows_have_global_scales_of_their_own():
    x = normal(1, 5, 64) * np.array([[1e-3], [1], [10], [100], [1e4]], np.float32)
    q = nvfp4.quantize(x, "max", scope="vector")
    np.testing.assert_allclose(q.global_scale, np.abs(x).max(1) / 2688, rtol=1e-6)
    np.testing.assert_array_equal(q.dequantize(), decode(q.codes, q.scales, q.global_scale))


def test_measured_global_scales_can_be_given_back_exactly():
    lost = 0
    for seed in range(60):
        x = normal(100 + seed, 4, 64)
        for method, largest in (("max", 2688), ("mse", 1536)):
            q = nvfp4.quantize(x, method)
            scale, divisor = nvfp4.global_scales(x, method)
            assert scale[0] == q.global_scale[0] == np.abs(x).max() / np.float32(largest)
            assert divisor[0] == np.float32(largest) / np.abs(x).max()
            for given in ({"global_divisor": divisor}, {"global_divisor": float(divisor[0])},
                          {"global_scale": scale, "global_divisor": divisor}):
                again = nvfp4.quantize(x, method, **given)
                np.testing.assert_array_equal(again.codes, q.codes)
                np.testing.assert_array_equal(again.scales, q.scales)
            assert again.global_scale[0] == q.global_scale[0]
            lost += np.float32(1) / scale[0] != divisor[0]
    assert lost > 0  # the reciprocal would not have been the same
    q = nvfp4.quantize(x, scope="vector")
    scales, divisors = nvfp4.global_scales(x, scope="vector")
    np.testing.assert_array_equal(scales, q.global_scale)
    again = nvfp4.quantize(x, scope="vector", global_divisor=divisors)
    np.testing.assert_array_equal(again.codes, q.codes)
    with pytest.raises(nvfp4.ShapeError, match="global_divisor"):
        nvfp4.quantize(x, scope="vector", global_scale=scales, global_divisor=divisors[:2])


def test_columns_are_rows_of_the_transpose():
    x = normal(2, 64, 48)
    down, along = nvfp4.quantize(x, axis="columns"), nvfp4.quantize(x.T.copy())
    np.testing.assert_array_equal(nvfp4.dequantize(down), nvfp4.dequantize(along).T)
    np.testing.assert_array_equal(down.scales, along.scales.T)


def test_rows_that_lie_apart_are_read_in_place():
    wide = normal(3, 8, 128)
    np.testing.assert_array_equal(nvfp4.quantize(wide[:, 32:64]).codes,
                                  nvfp4.quantize(wide[:, 32:64].copy()).codes)
    np.testing.assert_array_equal(nvfp4.quantize(wide[::2]).codes,
                                  nvfp4.quantize(wide[::2].copy()).codes)
    cube = normal(4, 4, 6, 32)
    np.testing.assert_array_equal(nvfp4.quantize(cube[..., 16:]).codes,
                                  nvfp4.quantize(cube[..., 16:].copy()).codes)
    with pytest.raises(nvfp4.ShapeError, match="one run of rows"):
        nvfp4.quantize(cube[:, ::4])


def test_half_precision_is_read_as_it_is():
    x = normal(5, 9, 64).astype(np.float16)
    np.testing.assert_array_equal(nvfp4.quantize(x).codes,
                                  nvfp4.quantize(x.astype(np.float32)).codes)
    y = nvfp4.dequantize(nvfp4.quantize(x), "float16")
    assert y.dtype == np.float16


def test_bfloat16_and_float8_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = normal(6, 9, 64).astype(ml_dtypes.bfloat16)
    q = nvfp4.quantize(x, scale_dtype="float8_e4m3fn")
    same = nvfp4.quantize(x.astype(np.float32))
    assert q.scales.dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_array_equal(q.scales.view(np.uint8), same.scales)
    np.testing.assert_array_equal(q.scales.astype(np.float32),
                                  same.scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    y = nvfp4.dequantize(q, ml_dtypes.bfloat16)
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y, nvfp4.dequantize(q).astype(ml_dtypes.bfloat16))


def test_memory_of_other_owners():
    x = normal(7, 4, 32)
    np.testing.assert_array_equal(nvfp4.quantize(memoryview(x)).codes, nvfp4.quantize(x).codes)
    frozen = x.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(nvfp4.quantize(frozen).codes, nvfp4.quantize(x).codes)


def test_out_is_written_in_place():
    x = normal(8, 4, 32)
    q = nvfp4.quantize(x)
    out = nvfp4.quantize(normal(9, 4, 32))
    assert nvfp4.quantize(x, out=out) is out
    np.testing.assert_array_equal(out.codes, q.codes)
    y = np.empty((4, 32), np.float32)
    assert nvfp4.dequantize(q, out=y) is y
    np.testing.assert_array_equal(y, nvfp4.dequantize(q))
    y.flags.writeable = False
    with pytest.raises(TypeError):
        nvfp4.dequantize(q, out=y)


@pytest.mark.parametrize("shape", [(1, 16), (5, 80), (129, 272), (200, 64)])
def test_layouts_of_the_scales(shape):
    x = normal(10, *shape)
    linear, tiled = nvfp4.quantize(x), nvfp4.quantize(x, layout="tiled_128x4")
    np.testing.assert_array_equal(tiled.scales.reshape(-1), tile_128x4(linear.scales))
    np.testing.assert_array_equal(nvfp4.block_scale_interleave(linear.scales),
                                  tile_128x4(linear.scales))
    for layout in ("tiled_8x4", "packed_row_major", "packed_mn_major", "tiled_128x4", "linear"):
        moved = nvfp4.relayout_scales(linear, layout)
        np.testing.assert_array_equal(moved.scales, nvfp4.quantize(x, layout=layout).scales)
        np.testing.assert_array_equal(nvfp4.dequantize(moved), nvfp4.dequantize(linear))


def test_scales_of_several_experts():
    scales = np.random.default_rng(0).integers(0, 127, (3, 40, 6), np.uint8)
    expected = np.concatenate([tile_128x4(s) for s in scales])
    np.testing.assert_array_equal(nvfp4.block_scale_interleave(scales), expected)


def test_amax():
    x = normal(11, 6, 32)
    x[2, 3] = np.nan
    assert nvfp4.amax(x)[0] == np.nanmax(np.abs(x))
    np.testing.assert_array_equal(nvfp4.amax(x, "vector"), np.nanmax(np.abs(x), 1))
    np.testing.assert_array_equal(nvfp4.amax(x, "vector", "columns"), np.nanmax(np.abs(x), 0))


def test_weights_and_hessian_change_what_mse_minimizes():
    x = normal(12, 8, 32)
    weights = np.ones(32, np.float32)
    np.testing.assert_array_equal(nvfp4.quantize(x, "mse", weights=weights).scales,
                                  nvfp4.quantize(x, "mse").scales)
    weights[:] = 0
    weights[[0, 16]] = 1
    only = nvfp4.dequantize(nvfp4.quantize(x, "mse", weights=weights))
    plain = nvfp4.dequantize(nvfp4.quantize(x, "mse"))
    assert np.sum((only - x)[:, ::16] ** 2) < np.sum((plain - x)[:, ::16] ** 2)
    hessian = np.tile(np.eye(16, dtype=np.float32), (2, 1))
    np.testing.assert_array_equal(nvfp4.quantize(x, "mse", hessian=hessian).scales,
                                  nvfp4.quantize(x, "mse").scales)


def test_errors_are_typed_and_name_the_rule():
    x = normal(13, 4, 32)
    with pytest.raises(nvfp4.ShapeError, match="multiple of 16"):
        nvfp4.quantize(x[:, :20].copy())
    with pytest.raises(ValueError, match="multiple of 16"):
        nvfp4.quantize(x[:, :20].copy())
    with pytest.raises(nvfp4.ShapeError, match="last dimension"):
        nvfp4.quantize(x[:, ::2])
    with pytest.raises(TypeError, match="float64"):
        nvfp4.quantize(x.astype(np.float64))
    with pytest.raises(TypeError, match="uint16"):
        nvfp4.quantize(x.astype(np.uint16))
    with pytest.raises(nvfp4.InvalidValueError, match="best"):
        nvfp4.quantize(x, "best")
    with pytest.raises(nvfp4.InvalidValueError, match="layout"):
        nvfp4.quantize(x, layout="spiral")
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(nvfp4.InvalidValueError):
            nvfp4.nvfp4_quantize(x, wrong)
    with pytest.raises(nvfp4.UnsupportedError, match="sf_vec_size"):
        nvfp4.nvfp4_quantize(x, 1.0, sf_vec_size=32)
    x[1, 2] = np.inf
    with pytest.raises(nvfp4.InvalidValueError):
        nvfp4.quantize(x, check_finite=True)
    q = nvfp4.quantize(normal(14, 4, 32))
    q.scales = q.scales[:3].copy()
    with pytest.raises(nvfp4.ShapeError, match="scales"):
        nvfp4.dequantize(q)
    assert issubclass(nvfp4.IoError, OSError) and issubclass(nvfp4.DeviceError, RuntimeError)


def test_other_threads_run_meanwhile():
    x = normal(15, 2048, 2048)
    running, ticks = True, 0

    def count():
        nonlocal ticks
        while running:
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    nvfp4.quantize(x, "mse")
    running = False
    thread.join()
    assert ticks > 0


def test_what_is_here():
    assert any(b["available"] and b["name"].startswith("cpu") for b in nvfp4.backends())
    assert nvfp4.threads() >= 1
    assert nvfp4.__version__.count(".") == 2
    assert divisor(np.array([[6.0]], np.float32)) == 448


@pytest.mark.parametrize("method", nvfp4.method_names())
def test_what_becomes_of_nan_and_infinities(method):
    """The results are those that the docstring states."""
    x = normal(3, 4, 64)
    x[1, 3] = 0.0
    good = nvfp4.quantize(x, method)
    x[1, 3] = np.nan
    q = nvfp4.quantize(x, method)
    codes = good.codes.copy()
    codes[1, 1] = codes[1, 1] & 0x0F | 0x70  # the odd element is in the high nibble
    np.testing.assert_array_equal(q.codes, codes)
    np.testing.assert_array_equal(q.scales, good.scales)
    assert q.global_scale == good.global_scale
    x[1, 3], x[2, 0] = 0.0, -np.inf
    q = nvfp4.quantize(x, method)
    assert q.global_scale == 1 and q.scales[2, 0] == 0x7E and q.codes[2, 0] & 0x0F == 0x0F
    for wrong in (np.nan, np.inf):
        x[2, 0] = wrong
        with pytest.raises(nvfp4.InvalidValueError, match=f"{wrong}"):
            nvfp4.quantize(x, method, check_finite=True)
