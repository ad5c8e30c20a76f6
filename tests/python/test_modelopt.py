"""nvidia-modelopt's own functions against ours: the same bytes, and the differences that
docs/numerics.md names."""

import warnings

import pytest

pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    nvfp4_tensor = pytest.importorskip("modelopt.torch.quantization.qtensor.nvfp4_tensor",
                                       reason="nvidia-modelopt is not installed",
                                       exc_type=ImportError)

import torch

import nvfp4
from packer_cases import (SAME, TINY, UNDERFLOW, ZERO_BLOCK, check_negative_zeros, check_packing,
                          check_random_tensors, check_zero_block, differences, neighbours, ours,
                          random_tensors)

NVFP4QTensor = nvfp4_tensor.NVFP4QTensor


def theirs(x, **scales):
    """(codes, scales as uint8, global scale) of their quantizer."""
    packed, scale, scale_2 = NVFP4QTensor.quantize(x.clone(), 16, **scales)
    return packed._quantized_data, scale.view(torch.uint8), scale_2


def assert_same(x):
    for mine, other in zip(ours(x), theirs(x)):
        assert torch.equal(mine.reshape(-1), other.reshape(-1))


def test_quantization_gives_the_same_bytes_on_random_tensors():
    check_random_tensors(theirs, underflow=1)


@pytest.mark.parametrize("name", SAME)
def test_quantization_gives_the_same_bytes_at_the_edges(name):
    assert_same(SAME[name])


def test_quantization_gives_the_same_bytes_for_bfloat16_input():
    for x in list(random_tensors())[:20]:
        x = x.bfloat16()
        differences(x, ours(x), theirs(x), 2688, underflow=1)


def test_packing_with_our_scales_gives_the_same_bytes():
    check_packing(lambda x, scales, multiplier: theirs(
        x, weights_scaling_factor=scales.view(torch.float8_e4m3fn),
        weights_scaling_factor_2=multiplier[0])[0])


def decode(codes, scales, multiplier, dtype):
    packed = NVFP4QTensor((codes.shape[0], 2 * codes.shape[1]), dtype, codes)
    return packed.dequantize(dtype, scale=scales.view(torch.float8_e4m3fn),
                             double_scale=multiplier[0], block_sizes={-1: 16})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_powers_of_two_dequantize_to_equal_bits(dtype):
    codes = torch.arange(256, dtype=torch.uint8).repeat_interleave(8).reshape(256, 8)
    for scale in range(0x7F):
        scales = torch.full((256, 1), scale, dtype=torch.uint8)
        multiplier = torch.tensor([2.0**-6])
        mine = nvfp4.e2m1_and_ufp8sf_scale_to_float(codes, scales, multiplier, dtype=dtype,
                                                    is_sf_swizzled_layout=False)
        other = decode(codes, scales, multiplier, dtype)
        assert torch.equal(mine, other), scale  # -0 equals 0, which their code 8 decodes to


def test_dequantization_rounds_once_more_under_other_global_scales():
    """(e2m1 · scale) · global has one rounding, e2m1 · (scale · global) two: (1 + u)² / (1 - u)."""
    differ = 0
    for x in random_tensors():
        codes, scales, multiplier = ours(x)
        q = nvfp4.quantize(x, "max")
        mine, other = q.dequantize(torch.float32), decode(codes, scales, multiplier, torch.float32)
        assert ((mine.double() - other.double()).abs() <= 3.01 * 2**-24 * mine.double().abs()).all()
        differ += (mine != other).sum().item()
        assert neighbours(q.dequantize(torch.bfloat16),
                          decode(codes, scales, multiplier, torch.bfloat16))
    assert differ > 0


@pytest.mark.parametrize("largest, significands", [
    (2688, [1.3671875, 1.9140625]),
    (1536, [1.015625, 1.046875, 1.09375, 1.15625, 1.53125, 1.5625, 1.71875])], ids=["max", "mse"])
def test_bfloat16_differs_for_few_significands(largest, significands):
    """An ulp of FP32 decides the rounding to BF16 only where e2m1 · scale · global is near a tie."""
    scales = torch.arange(0x7F, dtype=torch.uint8).repeat_interleave(16).reshape(-1, 1)
    codes = torch.arange(16, dtype=torch.uint8).repeat_interleave(8).reshape(16, 8).repeat(0x7F, 1)
    differ = []
    for significand in torch.arange(128) / 128 + 1:
        multiplier = significand.reshape(1) / largest
        mine = nvfp4.e2m1_and_ufp8sf_scale_to_float(codes, scales, multiplier, dtype=torch.bfloat16,
                                                    is_sf_swizzled_layout=False)
        other = decode(codes, scales, multiplier, torch.bfloat16)
        assert neighbours(mine, other)
        if not torch.equal(mine, other):
            differ.append(significand.item())
    assert differ == significands


def test_difference_zero_block():
    check_zero_block(theirs, their_scale=0x38)
    assert ours(ZERO_BLOCK)[2][0] == theirs(ZERO_BLOCK)[2]


def test_difference_negative_zero():
    check_negative_zeros(theirs)


def test_difference_underflow():
    codes, scales, _ = ours(UNDERFLOW)
    their_codes, their_scales, _ = theirs(UNDERFLOW)
    assert scales[0, 1] == 0 and their_scales[0, 1] == 1
    assert bytes(codes[0, 8:].tolist()) == b"\xf7" * 8  # decodes to 0
    assert bytes(their_codes[0, 8:].tolist()) == b"\xd5" * 8  # ±3 · 2^-9


def test_difference_amax_below_8e_36():
    codes, _, multiplier = ours(TINY)
    their_codes, _, their_multiplier = theirs(TINY)
    assert multiplier[0] > their_multiplier and not torch.equal(codes, their_codes)
    assert nvfp4.quantize(TINY, "max").dequantize("float32").isfinite().all()


@pytest.mark.parametrize("x", [torch.zeros(2, 32), torch.tensor([[float("nan")] + 15 * [1.0]])],
                         ids=["all zero", "NaN"])
def test_difference_where_theirs_becomes_nan(x):
    codes, scales, multiplier = ours(x)
    assert multiplier.isfinite().all() and (scales < 0x7F).all()
    _, their_scales, _ = theirs(x)
    assert (their_scales & 0x7F == 0x7F).all()
