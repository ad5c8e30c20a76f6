"""NVFP4 in PyTorch: operators torch.ops.nvfp4.*, and modules whose weights stay packed.

Importing it registers the operators. functions.py has those with the names of nvfp4's functions, operators.py those
of layers.
"""

from . import functions, operators  # noqa: F401 (both register operators)
from .modules import Nvfp4Experts, Nvfp4Linear
from .quantize import quantize_
from .training import export, prepare

__all__ = ["Nvfp4Experts", "Nvfp4Linear", "export", "prepare", "quantize_"]
