"""NVFP4 in plain NumPy, written from the format's definition, to hold the package against."""

import numpy as np

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
E4M3 = np.array([(m / 8) * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0**(e - 7)
                 for e in range(16) for m in range(8)], np.float32)
E4M3[127] = np.nan


def decode(codes, scales, global_scale, block=16):
    """[..., K/2] codes and [..., K/block] linear scales as float32 [..., K]."""
    codes = np.asarray(codes)
    nibbles = np.stack((codes & 15, codes >> 4), -1)
    nibbles = nibbles.reshape(*codes.shape[:-1], 2 * codes.shape[-1])
    scale = np.repeat(E4M3[np.asarray(scales).view(np.uint8)], block, -1)
    global_scale = np.asarray(global_scale, np.float32)
    if global_scale.size > 1:
        global_scale = global_scale.reshape(*codes.shape[:-1], 1)
    return (E2M1[nibbles] * scale) * global_scale


def tile_128x4(scales):
    """[M, KS] scales in 128x4 tiles: offset(m, k) of the cuBLAS documentation, one by one."""
    rows, blocks = scales.shape
    tiles = -(-blocks // 4)
    out = np.zeros(-(-rows // 128) * 128 * tiles * 4, np.uint8)
    for m in range(rows):
        for k in range(blocks):
            out[(m // 128 * tiles + k // 4) * 512 + m % 32 * 16 + m % 128 // 32 * 4 + k % 4] = (
                scales[m, k])
    return out


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def divisor(x):
    """448 · 6 / amax, as FlashInfer's users write it."""
    return np.float32(448 * 6) / np.abs(x).max()
