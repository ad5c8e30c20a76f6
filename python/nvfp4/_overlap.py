"""Outputs that share memory with an input, or with each other."""

import ctypes

import numpy as np

from . import _arrays
from ._errors import InvalidValueError


class _Elements:
    """The addresses of an array's elements."""

    def __init__(self, x):
        self.address, self.shape, self.strides, self.itemsize = _arrays.framework(x).memory(x)
        ends = [(n - 1) * stride for n, stride in zip(self.shape, self.strides)]
        self.begin = self.address + sum(end for end in ends if end < 0)
        self.end = self.address + sum(end for end in ends if end > 0) + self.itemsize
        self.is_empty = 0 in self.shape

    def _as_array(self):
        """Returns an array for NumPy to compare. Its elements may be in GPU memory and are never read."""
        memory = (ctypes.c_char * (self.end - self.begin)).from_address(self.begin)
        return np.ndarray(self.shape, f"V{self.itemsize}", memory, self.address - self.begin, self.strides)

    def overlap(self, other):
        apart = self.is_empty or other.is_empty or self.begin >= other.end or other.begin >= self.end
        return not apart and np.shares_memory(self._as_array(), other._as_array())


def require_apart(written, read):
    """Raises InvalidValueError if an output overlaps another one or an input. Both are name -> array or
    QuantizedTensor; None is skipped."""

    def elements(given):
        for name, x in given.items():
            parts = [(f"{name}.{part}", getattr(x, part)) for part in ("codes", "scales", "global_scale")] \
                if hasattr(x, "codes") else [(name, x)]
            yield from ((part, _Elements(array)) for part, array in parts if array is not None)

    outputs = list(elements(written))
    others = outputs + list(elements(read) if outputs else ())
    for i, (name, output) in enumerate(outputs):
        for other_name, other in others[i + 1:]:
            if output.overlap(other):
                raise InvalidValueError(f"{name} shares memory with {other_name}, must have its own")
