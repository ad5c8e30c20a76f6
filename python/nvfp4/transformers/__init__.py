"""NVFP4 checkpoints in Hugging Face transformers, on the kernels of this package.

`import nvfp4.transformers` registers it: AutoModelForCausalLM.from_pretrained() of a ModelOpt or
compressed-tensors checkpoint then keeps its NVFP4 weights packed, and quantization_config=Nvfp4Config(...)
quantizes a BF16 model while it loads. unregister() puts everything back.
"""

import transformers as _transformers

from .. import _versions

#: The oldest and the newest tested version of transformers.
OLDEST, NEWEST = (5, 17), (5, 24)

_versions.require_oldest("transformers", _transformers.__version__, OLDEST)
_versions.warn_if_untested("transformers", _transformers.__version__, NEWEST)
with _versions.interface("transformers", _transformers.__version__):
    from .config import Nvfp4Config
    from ..torch.modules import Nvfp4Experts, Nvfp4Linear
    from .quantizer import Nvfp4Quantizer
    from .registry import register, unregister

    register()

__all__ = ["Nvfp4Config", "Nvfp4Experts", "Nvfp4Linear", "Nvfp4Quantizer", "register", "unregister"]
