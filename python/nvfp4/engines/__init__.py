"""Plugins for inference engines, which run NVFP4 checkpoints with the kernels of this package: vLLM and SGLang.

The engines find nvfp4.engines.vllm and nvfp4.engines.sglang by entry points, in every process. The installed package
changes nothing by itself: `--quantization nvfp4` selects these kernels, or NVFP4_VLLM=1, NVFP4_SGLANG=1 in the
environment. config.py and methods.py have the common code.
"""

import logging

from .._errors import UnsupportedError
from .._versions import interface, require_oldest

#: The oldest and the newest tested version.
VLLM, SGLANG = ((0, 26), (0, 32)), ((0, 5, 16), (0, 5, 23))


def _register(engine, version, tested, load):
    try:
        require_oldest(engine, version, tested[0])
        with interface(engine, version):
            load().register()
    except UnsupportedError as no:
        # An engine without the required interfaces still runs, only without these kernels.
        logging.getLogger(f"{engine.lower()}.nvfp4").warning("nvfp4: its kernels are not there to be chosen: %s", no)


def register_vllm():
    """Registers the plugin with vLLM; the entry point vllm.general_plugins."""
    import vllm

    def load():
        from . import vllm

        return vllm

    _register("vLLM", vllm.__version__, VLLM, load)


def register_sglang():
    """Registers the plugin with SGLang; the entry point sglang.srt.plugins."""
    import sglang

    def load():
        from . import sglang

        return sglang

    _register("SGLang", sglang.__version__, SGLANG, load)
