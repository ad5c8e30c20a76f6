"""NVFP4 checkpoints in Hugging Face transformers, on the kernels of this package.

`import nvfp4.transformers` registers it: AutoModelForCausalLM.from_pretrained() of a ModelOpt or
compressed-tensors checkpoint then keeps its NVFP4 weights packed, and quantization_config=Config(...)
quantizes a BF16 model while it loads. unregister() puts everything back.
"""

import transformers as _transformers

from .._errors import UnsupportedError as _UnsupportedError

#: The range of versions that it is tested with: at least, and below.
VERSIONS = (5, 17), (5, 24)

_version = tuple(int(part) for part in _transformers.__version__.split(".")[:2])
if not VERSIONS[0] <= _version < VERSIONS[1]:
    raise _UnsupportedError(f"transformers {_transformers.__version__}, must be at least "
                            "{}.{} and below {}.{}".format(*VERSIONS[0], *VERSIONS[1]))

from .config import Config  # noqa: E402
from .modules import Nvfp4Experts, Nvfp4Linear  # noqa: E402
from .quantizer import Nvfp4Quantizer  # noqa: E402
from .registry import register, unregister  # noqa: E402

__all__ = ["Config", "Nvfp4Experts", "Nvfp4Linear", "Nvfp4Quantizer", "register", "unregister"]

register()
