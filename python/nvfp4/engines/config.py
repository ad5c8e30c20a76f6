"""The common part of the configurations for vLLM and SGLang."""

import logging
import os

import torch

from .._errors import InvalidValueError, UnsupportedError
from .._quantization_config import Schemes, unsupported_reason
from .._versions import warn_if_untested

NAME = "nvfp4"
ACTIVATIONS = ("auto", "nvfp4", "bf16")
ARITHMETICS = ("exact", "fp8")


def _choice(variable, choices):
    """Returns the value of an environment variable; by default the first choice."""
    asked = os.environ.get(variable) or choices[0]
    if asked not in choices:
        *others, last = choices
        raise InvalidValueError(f"{variable}={asked}, must be {', '.join(others)} or {last}")
    return asked


def arithmetic():
    """Returns the arithmetic of linear layers (nvfp4.plan_gemm), by NVFP4_ARITHMETIC in the environment."""
    return _choice("NVFP4_ARITHMETIC", ARITHMETICS)


def quantizes_activations(has_fp4_tensor_cores):
    """Returns whether W4A4 layers quantize their inputs, by NVFP4_ACTIVATIONS in the environment: `nvfp4`, `bf16`, or
    `auto`, which is `nvfp4` on CPUs and on GPUs with FP4 tensor cores; on other GPUs BF16 is faster and more accurate."""
    asked = _choice("NVFP4_ACTIVATIONS", ACTIVATIONS)
    return has_fp4_tensor_cores if asked == "auto" else asked == "nvfp4"


def chosen(config, asked):
    """Returns NAME if these kernels run a checkpoint with that quantization_config, otherwise None. Raises
    UnsupportedError if it cannot run and `asked` is true: the user named it."""
    reason = unsupported_reason(config)
    if reason and asked:
        raise UnsupportedError(f"--quantization nvfp4: the checkpoint has {reason}, must be NVFP4 of "
                               "ModelOpt or compressed-tensors")
    return None if reason else NAME


class EngineConfig:
    """The configuration of a checkpoint for an engine. It precedes the engine's own QuantizationConfig as a base
    class."""

    engine = None  #: name and version of the engine, and its newest tested version
    _said = set()  #: messages that were logged

    def __init__(self, config):
        super().__init__()
        warn_if_untested(*self.engine)
        if reason := unsupported_reason(config):
            raise UnsupportedError(f"quantization_config: {reason}, must have NVFP4 of ModelOpt or compressed-tensors")
        self.schemes = Schemes(config)
        #: The engine's own configuration of the same checkpoint, for layers that are quantized in another way.
        self.own = self.make_own(config) if self.schemes.mixed else None

    def make_own(self, config):
        raise NotImplementedError

    def scheme(self, prefix, parts=()):
        """Returns the scheme in which a layer runs: 'W4A4', 'W4A16', OTHER or None."""
        scheme = self.schemes.of_layer(prefix, parts)
        if scheme == "W4A4" and not quantizes_activations(self.has_fp4_tensor_cores()):
            self._say("inputs of W4A4 layers stay in 16 bits; NVFP4_ACTIVATIONS=nvfp4 quantizes them")
            return "W4A16"
        return scheme

    def has_fp4_tensor_cores(self):
        """Returns whether the device multiplies FP4, or is a CPU."""
        return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (10, 0)

    def _say(self, text):
        if text not in self._said:
            self._said.add(text)
            logging.getLogger(f"{self.engine[0].lower()}.nvfp4").info("nvfp4: %s", text)

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
