"""The functions of nvidia-modelopt and compressed-tensors against ours: the same bytes, and the differences that
docs/numerics.md names."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import nvfp4
from packer_cases import (NEGATIVE_ZEROS, SAME, TINY, UNDERFLOW, ZERO_BLOCK, differences, neighbours, nibbles_of, ours,
                          random_tensors)

FP8 = torch.float8_e4m3fn


class ModelOpt:
    """A packer. `zeros` and `underflow` are its scales of blocks whose scale is 0 here: of zeros, and too small."""

    zeros, underflow, underflown = 0x38, 0x01, b"\xd5"  # ±3 · 2^-9

    def __init__(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tensor = pytest.importorskip("modelopt.torch.quantization.qtensor.nvfp4_tensor", exc_type=ImportError,
                                              reason="nvidia-modelopt is not installed").NVFP4QTensor

    def quantize(self, x, **scales):
        """Returns (codes, scales as uint8, global scale in their sense)."""
        packed, scale, scale_2 = self.tensor.quantize(x.clone(), 16, **scales)
        return packed._quantized_data, scale.view(torch.uint8), scale_2.reshape(1)

    def global_scale(self, x):
        return ours(x)[2]

    def pack(self, x, scales, multiplier):
        return self.quantize(x, weights_scaling_factor=scales.view(FP8), weights_scaling_factor_2=multiplier[0])[0]

    def dequantize(self, codes, scales, multiplier, x, dtype=torch.bfloat16):
        packed = self.tensor((codes.shape[0], 2 * codes.shape[1]), dtype, codes)
        return packed.dequantize(dtype, scale=scales.view(FP8), double_scale=multiplier[0], block_sizes={-1: 16})


class CompressedTensors:
    zeros, underflow, underflown = 0x20, 0x20, b"\x80"  # codes of zero

    def __init__(self):
        self.helpers = pytest.importorskip("compressed_tensors.compressors.nvfp4.helpers",
                                           reason="compressed-tensors is not installed")
        from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
        from compressed_tensors.quantization import preset_name_to_scheme, utils
        self.compressor, self.utils = NVFP4PackedCompressor, utils
        self.scheme = preset_name_to_scheme("NVFP4A16", ["Linear"])

    def quantize(self, x):
        """Returns what their functions give, as llm-compressor calls them."""
        divisor = self.utils.generate_gparam(x.min(), x.max())
        blocks = x.reshape(x.shape[0], -1, 16)
        scales, _ = self.utils.calculate_qparams(blocks.amin(-1), blocks.amax(-1), self.scheme.weights, global_scale=divisor)
        codes = self.helpers.quantize_and_pack_fp4(x, scales, global_scale=divisor, group_size=16)
        return codes, scales.to(FP8).view(torch.uint8), divisor

    def global_scale(self, x, largest=2688):
        return (largest / x.abs().max()).reshape(1)

    def pack(self, x, scales, multiplier):
        return self.helpers.quantize_and_pack_fp4(x, scales.view(FP8).float(), group_size=16,
                                                  global_scale=self.global_scale(x, 1536))

    def dequantize(self, codes, scales, multiplier, x=None):
        return self.compressor.decompress({
            "weight_packed": codes, "weight_scale": scales.view(FP8),
            "weight_global_scale": 1 / multiplier if x is None else self.global_scale(x)}, self.scheme)["weight"]


@pytest.fixture(params=(ModelOpt, CompressedTensors))
def peer(request):
    return request.param()


@pytest.fixture
def modelopt():
    return ModelOpt()


@pytest.fixture
def compressed_tensors():
    return CompressedTensors()


# --- both -----------------------------------------------------------------------------------------


def test_random_tensors_have_the_same_bytes(peer):
    differ = sum(differences(x, ours(x), peer.quantize(x), 2688, peer.underflow) for x in random_tensors())
    assert differ < 20  # of 140 thousand, and all of them ties


@pytest.mark.parametrize("name", SAME)
def test_edges_have_the_same_bytes(peer, name):
    codes, scales, global_scale = peer.quantize(SAME[name])
    assert torch.equal(codes, ours(SAME[name])[0]) and torch.equal(scales, ours(SAME[name])[1])
    assert torch.equal(global_scale, peer.global_scale(SAME[name]))


@pytest.mark.parametrize("method", ("mse", "four_over_six"))
def test_packing_with_our_scales_gives_the_same_bytes(peer, method):
    differ = 0
    for x in random_tensors():
        mine = _, scales, multiplier = ours(x, method)
        differ += differences(x, mine, (peer.pack(x, scales, multiplier), scales), 1536)
    assert differ < 20


def powers_of_two(dtype):
    """Yields every scale with every pair of codes: (codes, scales, our values)."""
    codes = torch.arange(256, dtype=torch.uint8).repeat_interleave(8).reshape(256, 8)
    for scale in range(0x7F):
        scales = torch.full((256, 1), scale, dtype=torch.uint8)
        yield codes, scales, nvfp4.e2m1_and_ufp8sf_scale_to_float(
            codes, scales, torch.tensor([2.0**-6]), dtype=dtype, is_sf_swizzled_layout=False)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16, torch.float32))
def test_powers_of_two_dequantize_to_equal_values(modelopt, dtype):
    for codes, scales, mine in powers_of_two(dtype):
        other = modelopt.dequantize(codes, scales, torch.tensor([2.0**-6]), None, dtype)
        assert torch.equal(mine, other), scales[0]  # -0 equals 0, which their code 8 decodes to


def test_powers_of_two_dequantize_to_equal_bits(compressed_tensors):
    for codes, scales, mine in powers_of_two(torch.bfloat16):
        other = compressed_tensors.dequantize(codes, scales, torch.tensor([2.0**-6]))
        assert torch.equal(mine.view(torch.int16), other.view(torch.int16)), scales[0]


def test_dequantization_gives_the_same_bfloat16_or_its_neighbour(peer):
    """e2m1 · (scale / divisor), both rounded to FP32, is off from ours by at most 4 u."""
    for x in random_tensors():
        codes, scales, multiplier = ours(x)
        assert neighbours(peer.dequantize(codes, scales, multiplier, x), nvfp4.quantize(x, "max").dequantize(torch.bfloat16))


def test_difference_zero_block(peer):
    codes, scales, _ = ours(ZERO_BLOCK)
    their_codes, their_scales, their_global = peer.quantize(ZERO_BLOCK)
    assert torch.equal(codes, their_codes) and torch.equal(scales[:, 0], their_scales[:, 0])
    assert (scales[:, 1] == 0).all() and (their_scales[:, 1] == peer.zeros).all()
    assert torch.equal(their_global, peer.global_scale(ZERO_BLOCK))


def test_difference_negative_zero(peer):
    """They write +0 where we write what the sign bit says."""
    codes, scales, _ = ours(NEGATIVE_ZEROS)
    their_codes, their_scales, _ = peer.quantize(NEGATIVE_ZEROS)
    assert torch.equal(scales, their_scales)
    nibbles, their_nibbles = nibbles_of(codes), nibbles_of(their_codes)
    differ = nibbles != their_nibbles
    assert differ.any() and (nibbles[differ] == 8).all() and (their_nibbles[differ] == 0).all()


def test_difference_underflow(peer):
    codes, scales, _ = ours(UNDERFLOW)
    their_codes, their_scales, _ = peer.quantize(UNDERFLOW)
    assert scales[0, 1] == 0 and their_scales[0, 1] == peer.underflow
    assert bytes(codes[0, 8:].tolist()) == b"\xf7" * 8  # decodes to 0
    assert bytes(their_codes[0, 8:].tolist()) == peer.underflown * 8


def test_difference_amax_below_8e_36(peer):
    codes, _, multiplier = ours(TINY)
    their_codes, _, their_global = peer.quantize(TINY)
    assert not torch.equal(codes, their_codes) and multiplier[0] < 1e-35
    assert their_global == 1 if isinstance(peer, CompressedTensors) else multiplier > their_global
    assert nvfp4.quantize(TINY, "max").dequantize("float32").isfinite().all()


# --- ModelOpt -------------------------------------------------------------------------------------


def test_bfloat16_input_has_the_same_bytes(modelopt):
    for x in list(random_tensors())[:20]:
        x = x.bfloat16()
        differences(x, ours(x), modelopt.quantize(x), 2688, underflow=1)


def test_dequantization_rounds_once_more_under_other_global_scales(modelopt):
    """(e2m1 · scale) · global has one rounding, e2m1 · (scale · global) two: (1 + u)² / (1 - u)."""
    differ = 0
    for x in random_tensors():
        mine = nvfp4.quantize(x, "max").dequantize(torch.float32)
        other = modelopt.dequantize(*ours(x), x, torch.float32)
        assert ((mine.double() - other.double()).abs() <= 3.01 * 2**-24 * mine.double().abs()).all()
        differ += (mine != other).sum().item()
    assert differ > 0


@pytest.mark.parametrize("largest, significands", [
    (2688, [1.3671875, 1.9140625]),
    (1536, [1.015625, 1.046875, 1.09375, 1.15625, 1.53125, 1.5625, 1.71875])], ids=["max", "mse"])
def test_bfloat16_differs_for_few_significands(modelopt, largest, significands):
    """An ulp of FP32 decides the rounding to BF16 only where e2m1 · scale · global is near a tie."""
    scales = torch.arange(0x7F, dtype=torch.uint8).repeat_interleave(16).reshape(-1, 1)
    codes = torch.arange(16, dtype=torch.uint8).repeat_interleave(8).reshape(16, 8).repeat(0x7F, 1)
    differ = []
    for significand in torch.arange(128) / 128 + 1:
        multiplier = significand.reshape(1) / largest
        mine = nvfp4.e2m1_and_ufp8sf_scale_to_float(codes, scales, multiplier, dtype=torch.bfloat16,
                                                    is_sf_swizzled_layout=False)
        other = modelopt.dequantize(codes, scales, multiplier, None)
        assert neighbours(mine, other)
        if not torch.equal(mine, other):
            differ.append(significand.item())
    assert differ == significands


@pytest.mark.parametrize("x", [torch.zeros(2, 32), torch.tensor([[float("nan")] + 15 * [1.0]])], ids=["all zero", "NaN"])
def test_difference_where_theirs_becomes_nan(modelopt, x):
    _, scales, multiplier = ours(x)
    assert multiplier.isfinite().all() and (scales < 0x7F).all()
    assert (modelopt.quantize(x)[1] & 0x7F == 0x7F).all()


# --- compressed-tensors ---------------------------------------------------------------------------


def test_every_byte_is_packed_and_unpacked_alike(compressed_tensors):
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6])
    codes = torch.arange(256, dtype=torch.uint8)
    low_and_high = torch.stack([values[(codes & 15).long()], values[(codes >> 4).long()]], -1)
    assert torch.equal(compressed_tensors.helpers.pack_fp4_to_uint8(low_and_high).flatten(), codes)
    unpacked = compressed_tensors.helpers.unpack_fp4_from_uint8(codes, 256, 2, dtype=torch.float32)
    mine = nvfp4.e2m1_and_ufp8sf_scale_to_float(codes.reshape(32, 8), torch.full((32, 1), 0x38, dtype=torch.uint8),
                                                is_sf_swizzled_layout=False)
    assert torch.equal(unpacked.view(torch.int32), mine.reshape(256, 2).view(torch.int32))


def test_difference_tensor_of_zeros(compressed_tensors):
    codes, scales, multiplier = ours(torch.zeros(2, 32))
    their_codes, their_scales, divisor = compressed_tensors.quantize(torch.zeros(2, 32))
    assert torch.equal(codes, their_codes) and multiplier[0] == divisor == 1
    assert (scales == 0).all() and (their_scales == 0x20).all()


def test_difference_bfloat16_input(compressed_tensors):
    """They compute amax, divisor and block scales in BF16; the tests above widen the input."""
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(0)).bfloat16()
    _, scales, _ = ours(x)
    assert torch.equal(scales, ours(x.float())[1])
    _, their_scales, divisor = compressed_tensors.quantize(x)
    assert divisor == (2688 / x.abs().max()).bfloat16().float() and not torch.equal(scales, their_scales)


@pytest.mark.parametrize("bad", (float("inf"), float("nan")))
def test_difference_infinity_and_nan(compressed_tensors, bad):
    x = torch.tensor([[bad] + 15 * [1.0] + 16 * [3.0]])
    codes, scales, _ = ours(x)
    their_codes, their_scales, _ = compressed_tensors.quantize(x)
    assert (scales < 0x7F).all() and not torch.equal(codes, their_codes) and not torch.equal(scales, their_scales)
