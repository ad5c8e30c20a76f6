"""Stacks single experts of a checkpoint, and splits stacks: transformers' conversions, for codes, scales and global
scales."""

import torch
from transformers.core_model_loading import (Concatenate, ConversionOps, MergeModulelist,
                                             WeightConverter)

from .._errors import UnsupportedError
from ..torch.modules import STACKS


class StackScalars(ConversionOps):
    """Stacks one number per expert, [] or [1], of one or more weights: -> [E, weights]."""

    def __init__(self, scalar):
        self.scalar = scalar

    @torch.no_grad()
    def convert(self, input_dict, source_patterns, target_patterns, **others):
        columns = [torch.stack([t.reshape(()) for t in input_dict[pattern]])
                   for pattern in source_patterns]
        return {target_patterns[0]: torch.stack(columns, dim=1)}

    @property
    def reverse_op(self):
        return SplitScalars(self.scalar)


class SplitScalars(ConversionOps):
    """The inverse of StackScalars."""

    def __init__(self, scalar):
        self.scalar = scalar

    @torch.no_grad()
    def convert(self, input_dict, source_patterns, target_patterns, **others):
        (stacked,) = input_dict.values()
        stacked = stacked[0] if isinstance(stacked, list) else stacked
        return {pattern.replace("*", str(expert)): stacked[expert, column].reshape(self.scalar).clone()
                for column, pattern in enumerate(target_patterns) for expert in range(len(stacked))}

    @property
    def reverse_op(self):
        return StackScalars(self.scalar)


def sources_of(converter):
    """Returns the patterns that a converter was made with, which identify it."""
    return tuple(converter._original_source_patterns)


def check_stack(converter):
    """Raises UnsupportedError unless a converter only stacks experts."""
    kinds = [type(op) for op in converter.operations]
    dims = [op.dim for op in converter.operations if hasattr(op, "dim")]
    if (kinds, dims) not in (([MergeModulelist], [0]), ([MergeModulelist, Concatenate], [0, 1])):
        raise UnsupportedError(f"weights {', '.join(sources_of(converter))}: the model takes them by "
                               f"{converter.operations}, which NVFP4 weights cannot follow")


def expert_converters(converter, form):
    """Returns the converters that replace a model's converter of experts: one for each kind of tensor.

    The longer names come first, because transformers 5.17 takes the first that begins like a tensor.
    """
    sources = [source.removesuffix(".weight") for source in sources_of(converter)]
    (target,) = converter._original_target_patterns
    parameter = target.rpartition(".")[2]
    target = target.removesuffix(parameter) + STACKS[parameter]
    made = []
    for name, end in sorted(zip(form.names, ("codes", "scales", "globals", "inputs")),
                            key=lambda pair: -len(pair[0])):
        operations = ([StackScalars(form.scalar)] if end in ("globals", "inputs")
                      else list(converter.operations))
        one = WeightConverter([f"{source}.{name}" for source in sources], f"{target}_{end}", operations)
        one.scope_prefix, one.base_model_prefix = converter.scope_prefix, converter.base_model_prefix
        made.append(one)
    return made
