"""A small product of every form, for the CPU and for GPUs."""

from dataclasses import replace

import numpy as np

import nvfp4
from reference import decode, normal

GROUPS, N, K = 3, 64, 96
ROWS = 10
FORMS = {
    "dense": {},
    "grouped": {"row_ends": [4, 4, 9]},
    "grouped with gaps": {"row_starts": [1, 4, 7], "row_ends": [3, 6, 10]},
    "routed": {"ids": np.array([[2, 0], [1, 1], [0, 2], [2, 1], [0, 1]], np.int32)},
    "routed, shared": {"ids": np.arange(20, dtype=np.int32).reshape(ROWS, 2) % GROUPS},
    "every_group": {},
    "every_group, shared": {},
}


def name_of(form):
    """Returns the argument `form` of plan_gemm()."""
    return form.split(",")[0].split(" ")[0]


def moved(q, put):
    """A QuantizedTensor with its arrays elsewhere."""
    return replace(q, codes=put(q.codes), scales=put(q.scales), global_scale=put(q.global_scale))


def weights(form, gate_up=None, put=np.asarray):
    """(packed where `put` puts arrays, [G, N, K] in float32)."""
    count = 1 if form == "dense" else GROUPS
    parts = [nvfp4.quantize(normal(20 + g, N, K)) for g in range(count)]
    values = np.stack([decode(q.codes, q.scales, q.global_scale) for q in parts])
    return nvfp4.pack_weights(*(moved(q, put) for q in parts), groups=count, gate_up=gate_up), values


def left(form, scheme):
    """(what gemm() takes, its values)."""
    cols = K * (GROUPS if form == "every_group" else 1)
    x = normal(30, ROWS, cols)
    if scheme == "w4a16":
        return x, x
    q = nvfp4.quantize(x, "max", scope="vector")
    return q, decode(q.codes, q.scales, q.global_scale)


def arguments(form):
    """Keyword arguments of gemm(), and of reference.product()."""
    which = FORMS[form]
    given = {"expert_ids" if name == "ids" else name: value for name, value in which.items()}
    return given, which
