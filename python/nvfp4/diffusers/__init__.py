"""NVFP4 checkpoints in Hugging Face diffusers, on the kernels of this package.

`import nvfp4.diffusers` registers it: from_pretrained() of a model or a pipeline then keeps NVFP4 weights packed. The
import of nvfp4.transformers does the same for the text encoders of a pipeline. unregister() puts everything back.
"""

import diffusers as _diffusers

from .. import _versions
from .. import transformers as _transformers  # noqa: F401 (loads the text encoders)

#: The oldest and the newest tested version of diffusers.
OLDEST, NEWEST = (0, 42), (0, 42)

_versions.require_oldest("diffusers", _diffusers.__version__, OLDEST)
_versions.warn_if_untested("diffusers", _diffusers.__version__, NEWEST)
with _versions.interface("diffusers", _diffusers.__version__):
    from .quantizer import Nvfp4Quantizer, register, unregister

    register()

__all__ = ["Nvfp4Quantizer", "register", "unregister"]
