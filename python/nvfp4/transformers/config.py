"""quantization_config of checkpoints that transformers has no class for."""

import copy

from transformers.utils.quantization_config import QuantizationConfigMixin

from .._errors import InvalidValueError


class ModelOptConfig(QuantizationConfigMixin):
    """The quantization_config of a ModelOpt checkpoint, unchanged."""

    def __init__(self, **config):
        self.quant_method = "modelopt"
        self._config = {**config, "quant_method": "modelopt"}

    def to_dict(self):
        return copy.deepcopy(self._config)

    def __iter__(self):
        yield from self.to_dict().items()


class Nvfp4Config(QuantizationConfigMixin):
    """from_pretrained(folder, quantization_config=Nvfp4Config(...)): quantizes a BF16 model while it loads.

    scheme, method, ignore, include, fuse, input_amax, device: as of nvfp4.quantize_checkpoint, which
    does it, one tensor after the other, and gives the same bytes.
    keep  a folder for the quantized checkpoint, to be loaded from there the next time; default a
          temporary one, in TMPDIR, which is removed when the model is loaded
    """

    def __init__(self, scheme="w4a4", method="mse", *, ignore=(), include=(), fuse=(),
                 input_amax=None, device="cpu", keep=None, **others):
        if others:
            raise InvalidValueError(f"{next(iter(others))}: no such option, must be scheme, method, "
                                    "ignore, include, fuse, input_amax, device or keep")
        self.quant_method = "nvfp4_on_load"
        self.keep = keep
        self.options = dict(scheme=scheme, method=method, ignore=list(ignore), include=list(include),
                            fuse=list(fuse), input_amax=input_amax, device=device)

    def to_dict(self):
        return {"quant_method": self.quant_method, "keep": self.keep, **self.options}
