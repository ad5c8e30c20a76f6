"""compressed-tensors' own functions against ours: the same bytes, and the differences that
docs/numerics.md names."""

import pytest

torch = pytest.importorskip("torch")
helpers = pytest.importorskip("compressed_tensors.compressors.nvfp4.helpers",
                              reason="compressed-tensors is not installed")

from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

import nvfp4
from packer_cases import (SAME, TINY, UNDERFLOW, check_negative_zeros, check_packing,
                          check_random_tensors, check_zero_block, neighbours, ours, random_tensors)

SCHEME = preset_name_to_scheme("NVFP4A16", ["Linear"])
FP8 = torch.float8_e4m3fn


def theirs(x):
    """(codes, scales as uint8, divisor) of their functions, as llm-compressor calls them."""
    divisor = generate_gparam(x.min(), x.max())
    blocks = x.reshape(x.shape[0], -1, 16)
    scales, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), SCHEME.weights,
                                  global_scale=divisor)
    codes = helpers.quantize_and_pack_fp4(x, scales, global_scale=divisor, group_size=16)
    return codes, scales.to(FP8).view(torch.uint8), divisor


def divisor_of(x, largest):
    return (largest / x.abs().max()).reshape(1)


def assert_same(x):
    codes, scales, _ = ours(x)
    their_codes, their_scales, divisor = theirs(x)
    assert torch.equal(scales, their_scales)
    assert torch.equal(codes, their_codes)
    assert torch.equal(divisor, divisor_of(x, 2688))


def test_quantization_gives_the_same_bytes_on_random_tensors():
    check_random_tensors(theirs, underflow=0x20)


@pytest.mark.parametrize("name", SAME)
def test_quantization_gives_the_same_bytes_at_the_edges(name):
    assert_same(SAME[name])


def test_packing_with_our_scales_gives_the_same_bytes():
    check_packing(lambda x, scales, _: helpers.quantize_and_pack_fp4(
        x, scales.view(FP8).float(), group_size=16, global_scale=divisor_of(x, 1536)))


def test_every_byte_is_packed_and_unpacked_alike():
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6])
    codes = torch.arange(256, dtype=torch.uint8)
    low_and_high = torch.stack([values[(codes & 15).long()], values[(codes >> 4).long()]], -1)
    assert torch.equal(helpers.pack_fp4_to_uint8(low_and_high).flatten(), codes)
    unpacked = helpers.unpack_fp4_from_uint8(codes, 256, 2, dtype=torch.float32)
    mine = nvfp4.e2m1_and_ufp8sf_scale_to_float(
        codes.reshape(32, 8), torch.full((32, 1), 0x38, dtype=torch.uint8),
        is_sf_swizzled_layout=False)
    assert torch.equal(unpacked.view(torch.int32), mine.reshape(256, 2).view(torch.int32))


def decompress(codes, scales, divisor):
    return NVFP4PackedCompressor.decompress(
        {"weight_packed": codes, "weight_scale": scales.view(FP8), "weight_global_scale": divisor},
        SCHEME)["weight"]


def test_powers_of_two_dequantize_to_equal_bits():
    codes = torch.arange(256, dtype=torch.uint8).repeat_interleave(8).reshape(256, 8)
    for scale in range(0x7F):
        scales = torch.full((256, 1), scale, dtype=torch.uint8)
        mine = nvfp4.e2m1_and_ufp8sf_scale_to_float(codes, scales, torch.tensor([2.0**-6]),
                                                    dtype=torch.bfloat16,
                                                    is_sf_swizzled_layout=False)
        other = decompress(codes, scales, torch.tensor([2.0**6]))
        assert torch.equal(mine.view(torch.int16), other.view(torch.int16)), scale


def test_dequantization_gives_the_same_bfloat16_or_its_neighbour():
    """e2m1 · (scale / divisor), both rounded to FP32, is off from ours by at most 4 u."""
    for x in random_tensors():
        codes, scales, _ = ours(x)
        assert neighbours(decompress(codes, scales, divisor_of(x, 2688)),
                          nvfp4.quantize(x, "max").dequantize(torch.bfloat16))


def test_difference_zero_block():
    check_zero_block(theirs, their_scale=0x20)


def test_difference_negative_zero():
    check_negative_zeros(theirs)


def test_difference_underflow():
    codes, scales, _ = ours(UNDERFLOW)
    their_codes, their_scales, _ = theirs(UNDERFLOW)
    assert scales[0, 1] == 0 and their_scales[0, 1] == 0x20
    assert bytes(codes[0, 8:].tolist()) == b"\xf7" * 8  # decodes to 0
    assert bytes(their_codes[0, 8:].tolist()) == b"\x80" * 8  # as well


def test_difference_amax_below_8e_36():
    codes, _, multiplier = ours(TINY)
    their_codes, _, divisor = theirs(TINY)
    assert divisor == 1 and multiplier[0] < 1e-35
    assert not torch.equal(codes, their_codes)


def test_difference_tensor_of_zeros():
    codes, scales, multiplier = ours(torch.zeros(2, 32))
    their_codes, their_scales, divisor = theirs(torch.zeros(2, 32))
    assert torch.equal(codes, their_codes) and multiplier[0] == divisor == 1
    assert (scales == 0).all() and (their_scales == 0x20).all()


def test_difference_bfloat16_input():
    """They compute amax, divisor and block scales in BF16; the tests above widen the input."""
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(0)).bfloat16()
    _, scales, _ = ours(x)
    assert torch.equal(scales, ours(x.float())[1])
    _, their_scales, divisor = theirs(x)
    assert divisor == (2688 / x.abs().max()).bfloat16().float()
    assert not torch.equal(scales, their_scales)


def test_difference_infinity_and_nan():
    for bad in (float("inf"), float("nan")):
        x = torch.tensor([[bad] + 15 * [1.0] + 16 * [3.0]])
        codes, scales, _ = ours(x)
        their_codes, their_scales, _ = theirs(x)
        assert (scales < 0x7F).all()
        assert not torch.equal(codes, their_codes) and not torch.equal(scales, their_scales)
