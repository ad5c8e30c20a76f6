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


def nearest(x, table):
    """Index of the entry nearest to each x >= 0; a tie goes to the even one."""
    x, table = np.asarray(x, np.float64), np.asarray(table, np.float64)
    middles = (table[1:] + table[:-1]) / 2
    low = np.searchsorted(middles, x, "left")
    tie = (low < len(middles)) & (middles[np.minimum(low, len(middles) - 1)] == x)
    return np.where(tie & (low % 2 == 1), low + 1, low)


def quantize_max(x, multiplier):
    """(codes, scales) of float32 [M, K] with the quantizer 'max' (docs/numerics.md), one operation in
    FP32 after the other; multiplier [1], or one for each row."""
    one = np.float32(1)
    s = one / np.asarray(multiplier, np.float32).reshape(-1, 1)  # the divisor
    blocks = np.asarray(x, np.float32).reshape(len(x), -1, 16)
    largest = np.abs(blocks).max(-1)
    scales = nearest(np.minimum(largest * (s * (one / np.float32(6))), np.float32(448)),
                     E4M3[:127]).astype(np.uint8)
    with np.errstate(divide="ignore", over="ignore"):
        factor = np.minimum(one / (E4M3[scales] * (one / s)), np.finfo(np.float32).max)
    scaled = blocks * factor[..., None]
    codes = nearest(np.minimum(np.abs(scaled), np.float32(6)), E2M1[:8]).astype(np.uint8)
    codes = (codes | np.where(np.signbit(scaled), 8, 0).astype(np.uint8)).reshape(len(x), -1)
    return codes[:, ::2] | codes[:, 1::2] << 4, scales


def swiglu(gate_up, interleave=0, limit=np.inf):
    """silu(gate) · up of [.., 2·I] columns: gate and up one after the other, or in groups of
    `interleave` columns, gate first; gate is clamped to <= limit, up to both sides."""
    width = gate_up.shape[-1]
    group = np.arange(width) // (interleave or width // 2) % 2
    gate = np.minimum(gate_up[..., group == 0], limit)
    up = np.clip(gate_up[..., group == 1], -limit, limit)
    return gate / (1 + np.exp(-gate)) * up


def groups_of_rows(form, rows, groups, row_ends=None, row_starts=None, ids=None):
    """(row of y, group, row of x) for each pair that a product of that form has, but for every_group;
    `rows` of x."""
    if form == "dense":
        return [(r, 0, r) for r in range(rows)]
    if form == "grouped":
        starts = [0, *row_ends[:-1]] if row_starts is None else row_starts
        return [(r, g, r) for g in range(groups) for r in range(starts[g], row_ends[g])]
    top_k = ids.shape[1]
    return [(p, int(ids[p // top_k, p % top_k]), p if rows == ids.size else p // top_k)
            for p in range(ids.size)]


def product(x, w, form, alpha=1.0, bias=None, **which):
    """y in FP64: x [M, K] or, of every_group, [M, G · K], times w [G, N, K]; 0 in rows of no group.
    alpha one number or one for each group, bias [G, N]."""
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    groups, n, k = w.shape
    alpha = np.broadcast_to(np.asarray(alpha, np.float64), groups)
    bias = np.zeros((groups, n)) if bias is None else np.asarray(bias, np.float64).reshape(groups, n)
    if form == "every_group":
        left = [x if x.shape[1] == k else x[:, g * k:(g + 1) * k] for g in range(groups)]
        return np.concatenate([alpha[g] * left[g] @ w[g].T + bias[g] for g in range(groups)], 1)
    pairs = groups_of_rows(form, len(x), groups, **which)
    y = np.zeros((which["ids"].size if form == "routed" else len(x), n))
    for row, g, source in pairs:
        y[row] = alpha[g] * w[g] @ x[source] + bias[g]
    return y
