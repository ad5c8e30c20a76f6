"""Errors that name the argument at fault. A call that works costs nothing more than a frame."""

from __future__ import annotations

import enum
import functools
import inspect
import numbers
import reprlib

import numpy as np

from ._types import Function

_SCALES = ("alpha", "global_scale", "global_divisor", "a_global_sf", "global_scale_tensor",
           "out_global_scale")
_NO_ARRAYS = ("stream", "enable_pdl", "gate_up")
_WORDS = ("layout", "form", "scale_format")
_OBJECTS = {"w": "PackedWeights", "q": "QuantizedTensor", "plan": "GemmPlan"}


def _is_array(value):
    if hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
        return True
    if type(value).__name__ == "QuantizedTensor":
        return True
    try:
        memoryview(value)
    except TypeError:
        return isinstance(value, (list, tuple))
    return not isinstance(value, bytes)


def _is_dtype(value):
    return isinstance(value, (str, type, np.dtype)) or type(value).__name__ == "dtype"


def _rule(parameter, value):
    """Returns the rule that the type of `value` breaks, such as "an array", or "" if it breaks none."""
    name, default = parameter.name, parameter.default
    if value is None and default is None:
        return ""
    if name in _OBJECTS:
        return "" if type(value).__name__ == _OBJECTS[name] else f"a {_OBJECTS[name]}"
    if isinstance(default, enum.Enum):
        return ""
    if name.endswith("dtype"):
        return "" if _is_dtype(value) else "a dtype or its name"
    if name in _SCALES:
        fits = isinstance(value, numbers.Real) or _is_array(value)
        return "" if fits else "a number or an array"
    if name in _WORDS or isinstance(default, str):
        return "" if isinstance(value, str) else "a string"
    if isinstance(default, bool):
        return "" if type(value).__name__ in ("bool", "bool_") else "True or False"
    if isinstance(default, int) or name == "rows":
        fits = isinstance(value, numbers.Integral) and -2**63 <= value < 2**63
        return "" if fits else "an integer of 64 bits"
    if isinstance(default, float):
        return "" if isinstance(value, numbers.Real) else "a number"
    if name in _NO_ARRAYS:
        return ""
    return "" if _is_array(value) else "an array"


def named(function: Function) -> Function:
    """Decorates a function: a failed call with an argument of a wrong type raises a TypeError that names the
    argument."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            given = dict(zip(parameters, args), **kwargs)
            # Packed weights contain their scales.
            unread = ("b", "b_descale") if type(given.get("b")).__name__ == "PackedWeights" else ()
            for name, value in given.items():
                if name in unread:
                    continue
                parameter = parameters.get(name)
                rule = parameter and parameter.kind is not parameter.VAR_POSITIONAL and _rule(
                    parameter, value)
                if rule and not str(error).startswith(name):
                    raise TypeError(f"{name} = {reprlib.repr(value)}, must be {rule}") from None
            raise

    return call
