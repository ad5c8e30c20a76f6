"""NVFP4 checkpoints in SGLang on the kernels of this package.

SGLang calls register() in each of its processes (entry point sglang.srt.plugins). It takes effect with
`--quantization nvfp4`, or, with NVFP4_SGLANG=1, for every NVFP4 checkpoint.
"""

import os

import sglang
from sglang.srt.layers import linear, parameter, quantization
from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.moe.fused_moe_triton import FusedMoE
from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput
from sglang.srt.layers.quantization.base_config import (FusedMoEMethodBase, LinearMethodBase,
                                                        QuantizationConfig)
from sglang.srt.layers.quantization.kv_cache import BaseKVCacheMethod
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead

try:
    from sglang.srt.arg_groups.choices import add_quantization_method_choices
except ImportError:  # before SGLang 0.5.23
    from sglang.srt.server_args import add_quantization_method_choices

from .._errors import UnsupportedError
from .._quantization_config import OTHER
from . import SGLANG, methods
from .config import NAME, EngineConfig, chosen

#: Fused layers of models that do not declare them.
FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


class Nvfp4LinearMethod(methods.LinearMethod, LinearMethodBase):
    parameter = parameter


class Nvfp4ExpertsMethod(methods.ExpertsMethod, FusedMoEMethodBase):
    def create_moe_runner(self, layer, moe_runner_config):
        config = self.config = moe_runner_config
        given = {name: value for name, value in (
            ("activation", config.activation if config.activation != "silu" else None),
            ("is_gated", None if config.is_gated else False),
            ("gemm1_alpha", config.gemm1_alpha), ("gemm1_beta", getattr(config, "gemm1_beta", None)),
            ("routed_scaling_factor", config.routed_scaling_factor), ("no_combine", config.no_combine or None),
        ) if value not in (None, 1.0)}
        if given:
            raise UnsupportedError(f"{self.name}: {given}, must be plain SwiGLU, summed here")
        limits = [v for v in (config.swiglu_limit, config.gemm1_clamp_limit) if v is not None]
        self.limit = limits[0] if limits else None

    def apply(self, layer, dispatch_output):
        weights, ids = dispatch_output.topk_output[:2]
        return StandardCombineInput(hidden_states=self.run(
            layer, dispatch_output.hidden_states, ids, weights, self.limit,
            self.config.apply_router_weight_on_input))


class Nvfp4Config(EngineConfig, QuantizationConfig):
    engine = "SGLang", sglang.__version__, SGLANG[1]

    def __init__(self, config):
        super().__init__(config)
        self.packed_modules_mapping = {**FUSED, **(config.get("packed_modules_mapping") or {})}

    def get_scaled_act_names(self):
        return []

    @classmethod
    def override_quantization_method(cls, hf_quant_cfg, user_quant):
        asked = user_quant == NAME
        if not asked and (user_quant or os.environ.get("NVFP4_SGLANG", "0") in ("", "0")):
            return None
        return chosen(hf_quant_cfg or {}, asked)

    def make_own(self, config):
        modelopt = str(config["quant_method"]).startswith("modelopt")
        return quantization.get_quantization_config("modelopt_mixed" if modelopt else "compressed-tensors").from_config(config)

    def apply_weight_name_mapper(self, hf_to_sglang_mapper):
        self.schemes.rename(hf_to_sglang_mapper.apply_list)
        if self.own:
            self.own.apply_weight_name_mapper(hf_to_sglang_mapper)

    def get_quant_method(self, layer, prefix):
        if self.own:
            self.own.packed_modules_mapping = self.packed_modules_mapping
        if isinstance(layer, RadixAttention):
            return BaseKVCacheMethod(self) if self.schemes.kv_cache else None
        if isinstance(layer, (LinearBase, ParallelLMHead)):
            scheme = self.scheme(prefix, self.packed_modules_mapping.get(prefix.rpartition(".")[2], ()))
            if scheme is None:
                return UnquantizedLinearMethod()
            if scheme == OTHER:
                return self.own.get_quant_method(layer, prefix)
            return Nvfp4LinearMethod(self.schemes.form, scheme, prefix)
        if isinstance(layer, FusedMoE):
            scheme = self.scheme(prefix, [f"experts.0.{part}_proj" for part in ("gate", "up", "down")])
            if scheme is None:
                return None
            if scheme == OTHER:
                return self.own.get_quant_method(layer, prefix)
            return Nvfp4ExpertsMethod(self.schemes.form, scheme, prefix)
        return None


def register():
    """Makes `nvfp4` a method of quantization, asked before SGLang's own. May be called again."""
    known = quantization.QUANTIZATION_METHODS
    if NAME in known:
        return
    others = dict(known)
    known.clear()
    known[NAME] = Nvfp4Config
    known.update(others)
    quantization.CPU_QUANTIZATION_METHODS[NAME] = Nvfp4Config
    linear.WEIGHT_LOADER_V2_SUPPORTED.append(Nvfp4LinearMethod.__name__)
    add_quantization_method_choices([NAME])
