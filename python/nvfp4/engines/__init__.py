"""Inference engines that run NVFP4 checkpoints on the kernels of this package: vLLM and SGLang.

Both find nvfp4.engines.vllm and nvfp4.engines.sglang by entry points, in every process. Being installed
changes nothing: `--quantization nvfp4` asks for these kernels, or NVFP4_VLLM=1, NVFP4_SGLANG=1 in the
environment. What the engines share is in declared.py and methods.py.
"""

import logging

from .._errors import UnsupportedError


def _register(engine, load):
    try:
        load().register()
    except UnsupportedError as no:
        # A version that nobody tried is no reason to stop an engine that may not want these kernels.
        logging.getLogger(f"{engine}.nvfp4").warning("nvfp4: its kernels are not there to be chosen: %s", no)


def register_vllm():
    """The entry point vllm.general_plugins."""

    def load():
        from . import vllm

        return vllm

    _register("vllm", load)


def register_sglang():
    """The entry point sglang.srt.plugins."""

    def load():
        from . import sglang

        return sglang

    _register("sglang", load)
