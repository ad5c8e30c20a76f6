"""Mixtures of experts with packed weights: [gate; up] [E, 2·I, H] and down [E, H, I]."""

import sys
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor

from . import operators  # noqa: F401 (defines the operators)


@dataclass
class Stack:
    """One of the two matrices of all experts, packed."""

    weights: Tensor  #: bytes of the packed weights
    rows: int
    input_scale: Optional[Tensor] = None  #: a MULTIPLIER: [1] for gate_up, [E] for down


def is_swiglu(experts):
    """Reports whether experts of transformers compute silu(gate) · up between their GEMMs."""
    default = getattr(sys.modules.get("transformers.integrations.moe"), "_default_apply_gate", None)
    return type(experts)._apply_gate is default and type(experts.act_fn).__name__ in ("SiLU", "SiLUActivation")


#: Largest number of rows on a GPU that each read the weights of their expert. More rows are sorted by expert.
ROUTED_ROWS = 32


def forward(x, ids, gate_up, down, experts, mode, gate):
    """Returns y [T, top_k, H] of x [T, H] for the experts ids [T, top_k] of each token.

    mode  the InputMode of both GEMMs
    gate  the activation between the two GEMMs, [.., 2·I] -> [.., I]
    """
    few = ids.numel() <= ROUTED_ROWS and x.is_cuda and not torch.is_grad_enabled()
    return (by_row if few else by_expert)(x, ids, gate_up, down, experts, mode, gate)


def _of(scales, ids):
    return None if scales is None else scales[ids]


def by_row(x, ids, gate_up, down, experts, mode, gate):
    """Computes forward() with the weights of each row's expert. For few rows."""
    ids = ids.to(torch.int32)
    y = torch.ops.nvfp4.routed_linear(x, gate_up.weights, gate_up.rows, experts, ids, gate_up.input_scale, mode)
    y = torch.ops.nvfp4.routed_linear(gate(y), down.weights, down.rows, experts, ids,
                                      _of(down.input_scale, ids.reshape(-1)), mode)
    return y.view(*ids.shape, -1)


def by_expert(x, ids, gate_up, down, experts, mode, gate):
    """Computes forward() with rows sorted by expert."""
    top_k = ids.shape[-1]
    flat = ids.reshape(-1)
    # Rows of experts on other devices are sorted behind the last end.
    flat = torch.where((flat >= 0) & (flat < experts), flat, experts)
    order = torch.argsort(flat, stable=True)
    flat = flat[order]
    ends = torch.searchsorted(flat, torch.arange(experts, device=flat.device, dtype=flat.dtype),
                              right=True).to(torch.int32)
    y = torch.ops.nvfp4.grouped_linear(x[order // top_k], gate_up.weights, gate_up.rows, ends, gate_up.input_scale, mode)
    y = torch.ops.nvfp4.grouped_linear(gate(y), down.weights, down.rows, ends,
                                       _of(down.input_scale, flat.clamp(max=experts - 1)), mode)
    back = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return y[back].view(*ids.shape, down.rows)
