"""The functions with FlashInfer's names: arguments, shapes, senses of the global scales."""

import inspect

import numpy as np
import pytest

import nvfp4
from nvfp4 import SfLayout
from reference import decode, divisor, normal, tile_128x4


#: FlashInfer's arguments, in its order; of nvfp4_quantize those that may be given by position here.
ARGUMENTS = {
    "nvfp4_quantize": "a a_global_sf sfLayout do_shuffle sf_vec_size enable_pdl",
    "e2m1_and_ufp8sf_scale_to_float": "e2m1_tensor ufp8_scale_tensor global_scale_tensor sf_vec_size "
                                      "ufp8_type is_sf_swizzled_layout is_sf_8x4_layout",
    "block_scale_interleave": "unswizzled_sf",
    "silu_and_mul_nvfp4_quantize": "input global_scale sf_vec_size is_sf_swizzled_layout "
                                   "is_sf_8x4_layout enable_pdl",
    "rmsnorm_fp4quant": "input weight y_fp4 block_scale global_scale eps block_size scale_format "
                        "is_sf_swizzled_layout enable_pdl",
    "add_rmsnorm_fp4quant": "input residual weight y_fp4 block_scale global_scale eps block_size "
                            "scale_format is_sf_swizzled_layout output_both_sf_layouts "
                            "block_scale_unswizzled enable_pdl y_out",
    "mm_fp4": "a b a_descale b_descale alpha out_dtype out block_size use_8x4_sf_layout backend "
              "use_nvfp4 enable_pdl",
    "grouped_mm_fp4": "a b a_descale b_descale m_indptr alpha out out_dtype block_size",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_have_flashinfers_names_and_order(name):
    parameters = inspect.signature(getattr(nvfp4, name)).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == ARGUMENTS[name].split()


def rms_norm(x, weight, eps=1e-6):
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def close_to_one_step(codes, scales, global_scale, y):
    """Each value within half of E2M1's widest gap (2 of 6), plus the rounding of the scale."""
    decoded = decode(codes, scales.reshape(*codes.shape[:-1], -1), global_scale)
    blocks = np.abs(y).reshape(*y.shape[:-1], -1, 16).max(-1)
    assert np.all(np.abs(decoded - y) <= np.repeat(blocks, 16, -1) / 5)


def test_nvfp4_quantize_has_the_bytes_of_transformer_engine():
    """The vector "ramp" of tests/golden/te_exact_test.cc. In the other sense its global scale gives other bytes."""
    x = ((np.arange(16, dtype=np.float32) - 7.5) / 4).reshape(1, 16)
    q, sf = nvfp4.nvfp4_quantize(x, np.float32(2688 / 1.875), SfLayout.layout_linear)
    assert bytes(q).hex().upper() == "FFEECD9A21546677" and bytes(sf) == b"\x7e"
    assert bytes(nvfp4.nvfp4_quantize(x, np.float32(1.875 / 2688), SfLayout.layout_linear)[0]) != bytes(q)


@pytest.mark.parametrize("layout", SfLayout)
@pytest.mark.parametrize("shape", [(1, 64), (5, 80), (129, 272)])
def test_nvfp4_quantize_and_back(layout, shape):
    x = normal(1, *shape)
    global_sf = divisor(x)
    q, sf = nvfp4.nvfp4_quantize(x, global_sf, sfLayout=layout)
    linear_q, linear = nvfp4.nvfp4_quantize(x, np.array([global_sf]), SfLayout.layout_linear)
    np.testing.assert_array_equal(q, linear_q)
    own = nvfp4.quantize(x, "max", global_divisor=global_sf)
    assert bytes(own.codes) == bytes(linear_q) and bytes(own.scales) == bytes(linear)
    close_to_one_step(linear_q, linear, 1 / global_sf, x)
    if layout is SfLayout.layout_linear:
        assert sf.shape == (shape[0], shape[1] // 16)
    else:
        tile = 128 if layout is SfLayout.layout_128x4 else 8
        assert sf.shape == (-(-shape[0] // tile) * tile, -(-(shape[1] // 16) // 4) * 4)
    if layout is SfLayout.layout_128x4:
        np.testing.assert_array_equal(sf.reshape(-1), tile_128x4(linear))
    y = nvfp4.e2m1_and_ufp8sf_scale_to_float(
        q, sf, 1 / global_sf, is_sf_swizzled_layout=layout is not SfLayout.layout_linear,
        is_sf_8x4_layout=layout is SfLayout.layout_8x4)
    np.testing.assert_array_equal(y, decode(linear_q, linear, 1 / global_sf))


def test_more_dimensions_have_flashinfers_shapes():
    x = normal(42, 2, 3, 128)
    flat = x.reshape(6, 128)
    for layout in SfLayout:
        q, sf = nvfp4.nvfp4_quantize(x, 64.0, layout)
        flat_q, flat_sf = nvfp4.nvfp4_quantize(flat, 64.0, layout)
        assert q.shape == (2, 3, 64) and sf.shape == flat_sf.shape
        np.testing.assert_array_equal(q.reshape(6, 64), flat_q)
        np.testing.assert_array_equal(sf, flat_sf)
        y = nvfp4.e2m1_and_ufp8sf_scale_to_float(
            q, sf, 1 / 64, is_sf_swizzled_layout=layout is not SfLayout.layout_linear,
            is_sf_8x4_layout=layout is SfLayout.layout_8x4)
        assert y.shape == x.shape
    for swizzled in (True, False):  # SwiGLU makes rows of them
        for got, want in zip(nvfp4.silu_and_mul_nvfp4_quantize(x, 64.0, 16, swizzled),
                             nvfp4.silu_and_mul_nvfp4_quantize(flat, 64.0, 16, swizzled)):
            assert got.shape == want.shape
            np.testing.assert_array_equal(got, want)


def test_dequantization_takes_linear_scales_and_no_global_scale():
    x = normal(2, 6, 64)
    q, sf = nvfp4.nvfp4_quantize(x, 1.0, SfLayout.layout_linear)
    y = nvfp4.e2m1_and_ufp8sf_scale_to_float(q, sf, is_sf_swizzled_layout=False)
    np.testing.assert_array_equal(y, decode(q, sf, 1.0))


def test_silu_and_mul():
    x = normal(3, 9, 128)
    gate, up = x[:, :64].astype(np.float64), x[:, 64:]
    y = gate / (1 + np.exp(-gate)) * up
    global_sf = divisor(y)
    q, sf = nvfp4.silu_and_mul_nvfp4_quantize(x, global_sf, is_sf_swizzled_layout=False)
    close_to_one_step(q, sf, 1 / global_sf, y)
    tiled_q, tiled = nvfp4.silu_and_mul_nvfp4_quantize(x, global_sf)
    np.testing.assert_array_equal(tiled_q, q)
    np.testing.assert_array_equal(tiled.reshape(-1), tile_128x4(sf))


@pytest.mark.parametrize("shape", [(4, 64), (2, 3, 128)])
def test_rmsnorm_multiplies_by_its_global_scale(shape):
    x, weight = normal(4, *shape), normal(5, shape[-1])
    y = rms_norm(x, weight)
    global_sf = divisor(y)
    q, sf = nvfp4.rmsnorm_fp4quant(x, weight, global_scale=global_sf)
    assert q.shape == (*shape[:-1], shape[-1] // 2)
    close_to_one_step(q, sf, 1 / global_sf, y)
    half_q, half = nvfp4.rmsnorm_fp4quant(x.astype(np.float16), weight.astype(np.float16),
                                          global_scale=global_sf)
    close_to_one_step(half_q, half, 1 / global_sf,
                      rms_norm(x.astype(np.float16), weight.astype(np.float16)))
    codes, scales = np.empty_like(q), np.empty(sf.shape, np.uint8)
    assert nvfp4.rmsnorm_fp4quant(x, weight, codes, scales, global_sf)[0] is codes
    np.testing.assert_array_equal(codes, q)
    np.testing.assert_array_equal(scales, sf.view(np.uint8))


def test_every_function_that_quantizes_takes_the_same_sense():
    # 64 is a power of two: what the norm and SwiGLU make of x is scaled exactly.
    x, ones = normal(31, 8, 128), np.ones(128, np.float32)
    x = (x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True))).astype(np.float32)
    y = rms_norm(x, ones, 0.0).astype(np.float32)
    _, want = nvfp4.nvfp4_quantize(y, 64.0, SfLayout.layout_linear)
    _, norm = nvfp4.rmsnorm_fp4quant(x, ones, global_scale=64.0, eps=0.0)
    _, added = nvfp4.add_rmsnorm_fp4quant(x, np.zeros_like(x), ones, global_scale=64.0, eps=0.0)
    for got in (norm, added):
        decoded = decode(np.full((8, 64), 0x22, np.uint8), got.view(np.uint8), 1.0)
        np.testing.assert_allclose(decoded, decode(np.full((8, 64), 0x22, np.uint8), want, 1.0),
                                   rtol=0.13)


@pytest.mark.parametrize("shape", [(5, 80), (2, 70, 272)])
def test_swizzled_scales_of_the_norms_have_one_dimension(shape):
    x, weight = normal(32, *shape), normal(33, shape[-1])
    rows, blocks = x.size // shape[-1], shape[-1] // 16
    q, linear = nvfp4.rmsnorm_fp4quant(x, weight, global_scale=8.0)
    assert linear.shape == (*shape[:-1], blocks)
    tiles = tile_128x4(linear.reshape(rows, blocks).view(np.uint8))
    flat_q, flat = nvfp4.rmsnorm_fp4quant(x, weight, global_scale=8.0, is_sf_swizzled_layout=True)
    assert flat.shape == tiles.shape == (-(-rows // 128) * -(-blocks // 4) * 512,)
    np.testing.assert_array_equal(flat.view(np.uint8), tiles)
    np.testing.assert_array_equal(flat_q, q)
    zeros = np.zeros_like
    both = nvfp4.add_rmsnorm_fp4quant(x, zeros(x), weight, global_scale=8.0,
                                      output_both_sf_layouts=True)
    np.testing.assert_array_equal(both[1].view(np.uint8), tiles)
    assert both[2].shape == linear.shape and both[2].dtype == linear.dtype
    np.testing.assert_array_equal(both[2].view(np.uint8), linear.view(np.uint8))
    given = np.zeros((rows, blocks), np.uint8)
    assert nvfp4.add_rmsnorm_fp4quant(x, zeros(x), weight, None, None, 8.0, 1e-6, 16, None, False,
                                      True, given)[2] is given
    np.testing.assert_array_equal(given, linear.reshape(rows, blocks).view(np.uint8))


@pytest.mark.parametrize("rows", [1, 9, 130])
def test_silu_and_mul_in_tiles_of_8(rows):
    x = normal(34, rows, 160)
    q, linear = nvfp4.silu_and_mul_nvfp4_quantize(x, 32.0, 16, False, True)  # linear all the same
    tiled_q, tiled = nvfp4.silu_and_mul_nvfp4_quantize(x, 32.0, is_sf_8x4_layout=True)
    assert linear.shape == (rows, 5) and tiled.shape == (-(-rows // 8) * 8, 8)
    np.testing.assert_array_equal(tiled_q, q)
    want = np.zeros((tiled.shape[0] // 8, 2, 8, 4), np.uint8)  # [row tile, block tile, row, block]
    for m in range(rows):
        for k in range(5):
            want[m // 8, k // 4, m % 8, k % 4] = linear[m, k]
    np.testing.assert_array_equal(tiled.reshape(-1), want.reshape(-1))


@pytest.mark.parametrize("layout", SfLayout)
def test_a_scale_for_each_token(layout):
    x = normal(35, 70, 272) * np.logspace(-6, 6, 70, dtype=np.float32)[:, None]
    x[3] = 0
    x[5, 7] = np.finfo(np.float32).max
    base = np.float32(1) / np.float32(2688)
    codes, scales, tokens = nvfp4.nvfp4_quantize(x, base, layout, per_token_activation=True)
    largest = np.abs(x).max(-1)
    with np.errstate(divide="ignore"):
        divisors = np.minimum(np.float32(1) / base / largest, np.finfo(np.float32).max)
    # FlashInfer's tests ask for these bits.
    want = np.where(largest == 0, np.float32(0), np.float32(1) / divisors)
    assert tokens.dtype == np.float32
    np.testing.assert_array_equal(tokens, want)
    for row in (0, 4, 5, 69):
        one_codes, one = nvfp4.nvfp4_quantize(x[row:row + 1], divisors[row], SfLayout.layout_linear)
        np.testing.assert_array_equal(codes[row], one_codes[0])
        if layout is SfLayout.layout_linear:
            np.testing.assert_array_equal(scales[row], one[0])
    assert not (codes[3] & 0x77).any()


def test_torch_scales_for_each_token_have_equal_bits():
    torch = pytest.importorskip("torch")
    x = normal(43, 300, 64)
    base = np.float32(1) / np.float32(2688)
    expected = nvfp4.nvfp4_quantize(x, base, per_token_activation=True)
    got = nvfp4.nvfp4_quantize(torch.from_numpy(x), base, per_token_activation=True)
    for ours, theirs in zip(got, expected):
        np.testing.assert_array_equal(ours.numpy(), theirs)


def test_add_rmsnorm_changes_the_residual_in_place():
    x, residual, weight = normal(6, 5, 64), normal(7, 5, 64), normal(8, 64)
    total = x + residual
    expected = nvfp4.rmsnorm_fp4quant(total, weight, global_scale=100.0)
    got = nvfp4.add_rmsnorm_fp4quant(x, residual, weight, global_scale=100.0)
    np.testing.assert_array_equal(residual, total)
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1].view(np.uint8), expected[1].view(np.uint8))


def test_add_rmsnorm_gives_the_normalized_values_too():
    weight = normal(8, 64)
    for shape in ((5, 64), (2, 3, 64)):
        x, residual = normal(6, *shape), normal(7, *shape)
        y, again = np.zeros_like(x), residual.copy()
        got = nvfp4.add_rmsnorm_fp4quant(x, residual, weight, global_scale=100.0, y_out=y)
        assert len(got) == 2
        np.testing.assert_allclose(y, rms_norm(residual, weight), rtol=1e-6)
        expected = nvfp4.add_rmsnorm_fp4quant(x, again, weight, global_scale=100.0)
        np.testing.assert_array_equal(got[0], expected[0])
    with pytest.raises(nvfp4.ShapeError, match="y_out"):
        nvfp4.add_rmsnorm_fp4quant(x, residual, weight, y_out=np.zeros((5, 64), np.float32))
    with pytest.raises(nvfp4.InvalidValueError, match="y_out has dtype float64"):
        nvfp4.add_rmsnorm_fp4quant(x, residual, weight, y_out=np.zeros(shape))


def test_the_normalized_values_have_the_dtype_of_torch():
    torch = pytest.importorskip("torch")
    x, residual = (torch.from_numpy(normal(i, 5, 64)).bfloat16() for i in (6, 7))
    weight, y = torch.from_numpy(normal(8, 64)), torch.empty(5, 64, dtype=torch.bfloat16)
    nvfp4.add_rmsnorm_fp4quant(x, residual, weight, y_out=y)
    expected = rms_norm(residual.float().numpy(), weight.numpy())
    torch.testing.assert_close(y.double(), torch.from_numpy(expected), rtol=2**-8, atol=0)


def quantized(x):
    global_sf = divisor(x)
    q, sf = nvfp4.nvfp4_quantize(x, global_sf)
    return q, sf, global_sf, nvfp4.e2m1_and_ufp8sf_scale_to_float(q, sf, 1 / global_sf)


@pytest.mark.parametrize("m, n, k", [(1, 8, 64), (48, 256, 128), (5, 40, 208), (3, 128, 2048)])
def test_mm_fp4(m, n, k):
    a, a_sf, a_global, a_value = quantized(normal(9, m, k))
    b, b_sf, b_global, b_value = quantized(normal(10, n, k))
    alpha = 1 / (a_global * b_global)
    exact = a_value.astype(np.float64) @ b_value.T.astype(np.float64)
    bound = (np.abs(a_value).astype(np.float64) @ np.abs(b_value).T) * (k // 16 + 4) * 2.0**-24
    for b_scales in (b_sf.T, b_sf.reshape(-1), b_sf):  # of the last shape they are square
        y = nvfp4.mm_fp4(a, b.T, a_sf, b_scales, alpha, out_dtype=np.float32)
        assert y.shape == (m, n) and np.all(np.abs(y - exact) <= bound)
    q = nvfp4.QuantizedTensor(b, b_sf, np.ones(1, np.float32), (n, k), layout="tiled_128x4")
    np.testing.assert_array_equal(
        nvfp4.mm_fp4(a, nvfp4.pack_weights(q), a_sf, None, alpha, out_dtype="float32"), y)
    with pytest.raises(nvfp4.ShapeError):
        nvfp4.mm_fp4(a, b, a_sf, b_sf, alpha, out_dtype="float32")


def test_grouped_mm_fp4():
    n, k, ends = 24, 64, [0, 5, 5, 9, 11]
    groups = len(ends) - 1
    a, a_sf, a_global, a_value = quantized(normal(11, 12, k))
    weights = [quantized(normal(20 + g, n, k)) for g in range(groups)]
    b = np.stack([w[0] for w in weights])
    b_sf = np.stack([w[1] for w in weights])
    alpha = np.array([1 / (a_global * w[2]) for w in weights], np.float32)
    y = nvfp4.grouped_mm_fp4(a, b, a_sf, b_sf, np.array(ends, np.int32), alpha,
                             out_dtype="float32")
    for g in range(groups):
        rows = slice(ends[g], ends[g + 1])
        exact = a_value[rows].astype(np.float64) @ weights[g][3].T.astype(np.float64)
        np.testing.assert_allclose(y[rows], exact, rtol=1e-5, atol=1e-4)
    assert not y[ends[-1]:].any()


def test_gemm_of_full_precision_and_of_packed_parts():
    x, w1, w2 = normal(12, 3, 7, 96), normal(13, 32, 96), normal(14, 16, 96)
    q1, q2 = nvfp4.quantize(w1, "mse"), nvfp4.quantize(w2, "mse", scope="vector")
    packed = nvfp4.pack_weights(q1, q2)
    assert (packed.rows, packed.cols) == (48, 96)
    bias = normal(15, 48)
    y = nvfp4.gemm(x, packed, bias=bias, alpha=0.5)
    value = np.concatenate([nvfp4.dequantize(q1), nvfp4.dequantize(q2)]).astype(np.float64)
    exact = 0.5 * (x.astype(np.float64) @ value.T) + bias
    # BF16 products are possible in W4A16; docs/numerics.md, "GEMM".
    bound = 0.5 * (np.abs(x).astype(np.float64) @ np.abs(value).T) * 2.0**-7 + 1e-6
    assert y.shape == (3, 7, 48) and np.all(np.abs(y - exact) <= bound)


def test_what_is_not_nvfp4_is_refused():
    x = normal(16, 4, 64)
    with pytest.raises(nvfp4.UnsupportedError):
        nvfp4.nvfp4_quantize(x, 1.0, do_shuffle=True)
    with pytest.raises(nvfp4.UnsupportedError):
        nvfp4.rmsnorm_fp4quant(x, x[0], scale_format="ue8m0")
    with pytest.raises(nvfp4.ShapeError):
        nvfp4.silu_and_mul_nvfp4_quantize(x[:, :48].copy(), 1.0)


def test_torch_gets_flashinfers_types():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(normal(41, 4, 64))
    for codes, scales in (nvfp4.rmsnorm_fp4quant(x, torch.ones(64)),
                          nvfp4.add_rmsnorm_fp4quant(x, x.clone(), torch.ones(64))):
        assert codes.dtype == getattr(torch, "float4_e2m1fn_x2", torch.uint8)
        assert codes.shape == (4, 32) and scales.dtype == torch.float8_e4m3fn
