"""The common part of the configurations for vLLM and SGLang."""

import torch

from .._errors import UnsupportedError
from .._versions import warn_if_untested
from .declared import Declared, why_not

NAME = "nvfp4"


def chosen(config, asked):
    """Returns NAME if these kernels run a checkpoint with that quantization_config, otherwise None. Raises
    UnsupportedError if it cannot run and `asked` is true: the user named it."""
    wrong = why_not(config)
    if wrong and asked:
        raise UnsupportedError(f"--quantization nvfp4: the checkpoint has {wrong}, must be NVFP4 of "
                               "ModelOpt or compressed-tensors")
    return None if wrong else NAME


class Config:
    """The configuration of a checkpoint for an engine. It precedes the engine's own QuantizationConfig as a base
    class."""

    engine = None  #: its name, its version and the newest one that was tested

    def __init__(self, config):
        super().__init__()
        warn_if_untested(*self.engine)
        self.declared = Declared(config)

    @classmethod
    def from_config(cls, config):
        return cls(config)

    def get_name(self):
        return NAME

    def get_supported_act_dtypes(self):
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls):
        return 80

    @staticmethod
    def get_config_filenames():
        return ["hf_quant_config.json"]
