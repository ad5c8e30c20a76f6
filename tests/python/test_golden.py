"""The vectors of the TransformerEngine recipe, as tests/golden/te_exact_test.cc has them."""

import numpy as np
import pytest

import nvfp4


def bf16(bits):
    return (np.array(bits, np.uint32) << 16).view(np.float32)


VECTORS = {
    "ramp": (1.875, (np.arange(16) - 7.5) / 4, 0x7E, "FFEECD9A21546677"),
    "ties": (2688, [.25, .75, 1.25, 1.75, 2.5, 3.5, 5, 6,
                    -.25, -.75, -1.25, -1.75, -2.5, -3.5, -5, -0.], 0x38, "20426476A8CAEC8E"),
    "half-step traps": (2688, [2.5, 2.515625, 2.625, 2.734375, 2.75, 3.484375, 3.5, 3.625,
                               3.734375, 3.75, 5, 5.03125, 5.125, 5.25, 5.28125, 6],
                        0x38, "5455556666767777"),
    "bf16 bits": (17.5, bf16([0xC0C0, 0xC0A3, 0xC086, 0xC18C, 0xC01A, 0xBFC0, 0xBF1A, 0x3E9A,
                              0x3F9A, 0x4006, 0x4040, 0x407A, 0x409A, 0x40B6, 0x40D3, 0x40F0]),
                  0x7E, "BCFB9A0811324354"),
    "subnormal scale": (2688, bf16([0x3A03, 0x3A83, 0x3AC5, 0x3B03, 0x3B24, 0x3B45, 0x3B65, 0x3B83,
                                    0x3B93, 0x3BA4, 0x3BB4, 0x3BC5, 0x3BD5, 0x3BE5, 0x3BF6, 0x3C03]),
                        0x01, "1122334454556566"),
    "underflow": (2688, [.005, -.005] * 4 + [0., -0.] * 4, 0x00, "F7F7F7F780808080"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_nvfp4_quantize_gives_the_bytes_of_transformer_engine(name):
    amax, x, scale, codes = VECTORS[name]
    x = np.asarray(x, np.float32).reshape(1, 16)
    global_sf = np.array([448 * 6 / amax], np.float32)
    q, sf = nvfp4.nvfp4_quantize(x, global_sf, nvfp4.SfLayout.layout_linear)
    assert bytes(sf) == bytes([scale])
    assert bytes(q).hex().upper() == codes
    # The same by its reciprocal, in the other sense.
    own = nvfp4.quantize(x, "max", global_scale=float(np.float32(amax) / np.float32(2688)))
    assert bytes(own.codes) == bytes(q) and bytes(own.scales) == bytes(sf)


def test_the_ramps_first_element_decodes_to_itself():
    amax, x, _, _ = VECTORS["ramp"]
    x = np.asarray(x, np.float32).reshape(1, 16)
    global_sf = np.float32(2688) / np.float32(amax)
    q, sf = nvfp4.nvfp4_quantize(x, global_sf)
    y = nvfp4.e2m1_and_ufp8sf_scale_to_float(q, sf, 1 / global_sf)
    assert y[0, 0] == -1.875


def test_a_scale_in_the_wrong_sense_shows():
    x = np.asarray(VECTORS["ramp"][1], np.float32).reshape(1, 16)
    right, _ = nvfp4.nvfp4_quantize(x, 2688 / 1.875, nvfp4.SfLayout.layout_linear)
    wrong, _ = nvfp4.nvfp4_quantize(x, 1.875 / 2688, nvfp4.SfLayout.layout_linear)
    assert bytes(right) != bytes(wrong)
