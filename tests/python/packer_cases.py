"""Tensors on which NVFP4 packers are compared: random ones, and those at the edges of the format."""

import torch

import nvfp4

LARGEST = 2688.0  # 6 · 448: a tensor with this amax has the global scale 1


def random_tensors(count=60):
    """float32 matrices of many shapes, magnitudes and tails."""
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        rows, blocks = 1 + seed * 7 % 33, 1 + seed * 5 % 19
        x = torch.randn(rows, 16 * blocks, generator=generator)
        if seed % 3 == 1:  # heavy tails: block scales from subnormal to 448
            x = x * torch.exp(4 * torch.randn(rows, 16 * blocks, generator=generator))
        if seed % 4 == 3:
            x = x.bfloat16().float()
        yield x * 10.0**(seed % 13 - 6)


def under(*block):
    """A row whose global scale is 1, and whose second block is the given one."""
    first = torch.zeros(16)
    first[0] = LARGEST
    return torch.cat([first, torch.tensor(block, dtype=torch.float32)]).reshape(1, 32)


def _random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


#: Every packer must give the same bytes for these.
SAME = {
    "ties": under(.25, .75, 1.25, 1.75, 2.5, 3.5, 5, 6,
                  -.25, -.75, -1.25, -1.75, -2.5, -3.5, -5, -6),
    "smallest subnormal scale": under(*(.0005 * (i + 1) for i in range(16))),
    "subnormal scale": under(*(.01 * (i + 1) for i in range(16))),
    "magnitudes that round to zero, of both signs": under(6, *[-.1, .1, -1e-30, 1e-30, .2] * 3),
    "amax 3.4e38": _random(4, 64) / _random(4, 64).abs().max() * 3.4028e38,
    "amax 1e-35": _random(4, 64) / _random(4, 64).abs().max() * 1e-35,
    "one value": torch.full((1, 16), 3.0),
    "bfloat16 values": _random(4, 64).bfloat16().float(),
    "float16 values": _random(4, 64).half().float(),
}

ZERO_BLOCK = torch.cat([_random(4, 16), torch.zeros(4, 16)], 1)
NEGATIVE_ZEROS = under(6, *[-0.0, 0.0, 1.0] * 5)
UNDERFLOW = under(*[.005, -.005] * 8)  # amax / 6 < 2^-10, which rounds to no E4M3 scale but 0
TINY = _random(4, 64) / _random(4, 64).abs().max() * 1e-37


def ours(x, quantizer="max"):
    """(codes, scales as uint8, global scale), PyTorch tensors."""
    q = nvfp4.quantize(x, quantizer)
    return q.codes, q.scales, q.global_scale


U = 2.0**-24  # half an ulp of FP32, relative
E4M3 = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def near_tie(exact, one, other, values, slack):
    """Reports whether the codes `one` and `other` are neighbours, and `exact` is so close to the middle of their values
    that FP32 arithmetic with a relative error of `slack` may give either."""
    middle = (values[one.long()] + values[other.long()]) / 2
    return ((one.int() - other.int()).abs() == 1) & ((exact - middle).abs() <= slack * middle)


def nibbles_of(codes):
    return torch.stack([codes & 15, codes >> 4], -1).flatten(-2)


def differences(x, mine, other, largest, underflow=-1):
    """Returns the numbers of block scales and of codes that differ. Asserts that each differs for one of two reasons.

    The exact quotient is a tie but for FP32 rounding: block scales are four operations here and
    three there, codes five and three. Or the block underflows: scale 0 here, `underflow` there.
    """
    codes, scales = nibbles_of(mine[0]), mine[1]
    their_codes, their_scales = nibbles_of(other[0]), other[1]
    x = x.double()
    block_amax = x.abs().reshape(*scales.shape, 16).amax(-1)
    tensor_amax = x.abs().max()
    underflows = (scales == 0) & (scales != their_scales)
    assert (their_scales[underflows] == underflow).all()
    differ = (scales != their_scales) & ~underflows
    exact = block_amax * largest / tensor_amax / 6
    assert near_tie(exact[differ], scales[differ], their_scales[differ], E4M3, 4.01 * U).all()
    same = (scales == their_scales).repeat_interleave(16, -1)
    unit = E4M3[scales.long()].repeat_interleave(16, -1) * tensor_amax / largest
    code_differs = (codes != their_codes) & same
    assert torch.equal(codes[code_differs] & 8, their_codes[code_differs] & 8)
    assert near_tie((x.abs() / unit)[code_differs], codes[code_differs] & 7,
                    their_codes[code_differs] & 7, E2M1, 5.01 * U).all()
    return differ.sum().item() + code_differs.sum().item()


def neighbours(a, b):
    """Reports whether two BF16 or FP16 tensors have equal or adjacent numbers everywhere."""
    bits = [t.view(torch.int16).int() for t in (a, b)]
    return ((a == b) | ((bits[0] - bits[1]).abs() <= 1)).all()
