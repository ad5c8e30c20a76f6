"""NVFP4 checkpoints in vLLM on the kernels of this package.

vLLM calls register() in each of its processes (entry point vllm.general_plugins). It takes effect with
`--quantization nvfp4`, or, with NVFP4_VLLM=1, for every NVFP4 checkpoint on a CPU or a Hopper GPU.
Checkpoints: ModelOpt's and compressed-tensors' with NVFP4 weights. Layers of another kind, such as FP8, run as in vLLM.
"""

import os

import vllm
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor import parameter
from vllm.model_executor.layers.attention import Attention, MLAAttention
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.linear import (LinearBase, LinearMethodBase, UnquantizedLinearMethod,
                                               register_weight_loader_v2_supported_method)
from vllm.model_executor.layers.quantization import get_quantization_config, register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.platforms import current_platform

from .._errors import UnsupportedError
from .._quantization_config import OTHER
from . import VLLM, methods
from .config import NAME, EngineConfig, arithmetic, chosen, quantizes_activations


def _is_asked_for(user_quant):
    if user_quant == NAME:
        return True
    if user_quant is not None or os.environ.get("NVFP4_VLLM", "0") in ("", "0"):
        return False
    return current_platform.is_cpu() or current_platform.is_device_capability(90)


@register_weight_loader_v2_supported_method
class Nvfp4LinearMethod(methods.LinearMethod, LinearMethodBase):
    parameter = parameter


def _first_of_run(expert_map):
    """Returns the first expert of this rank if its experts are consecutive, otherwise None."""
    here = [] if expert_map is None else expert_map.tolist()
    count = sum(n >= 0 for n in here)
    first = here.index(0) if 0 in here else 0
    return first if here[first:first + count] == list(range(count)) else None


class Nvfp4ExpertsMethod(methods.ExpertsMethod, FusedMoEMethodBase):
    def __init__(self, form, scheme, name, layer):
        methods.ExpertsMethod.__init__(self, form, scheme, name)
        FusedMoEMethodBase.__init__(self, layer.moe_config)

    def get_fused_moe_quant_config(self, layer):
        return None

    def _limit(self, layer):
        special = {name: getattr(layer, name, None) for name in ("swiglu_alpha", "swiglu_beta")}
        special = {name: value for name, value in special.items() if value not in (None, 0.0, 1.0)}
        if layer.activation != MoEActivation.SILU or special:
            raise UnsupportedError(f"{self.name}: {layer.activation} {special or ''}, must be plain SwiGLU")
        return getattr(layer, "swiglu_limit", None)

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype,
                       **attributes):
        self.limit = self._limit(layer)
        super().create_weights(layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype,
                               **attributes)

    def process_weights_after_loading(self, layer):
        super().process_weights_after_loading(layer)
        self.first = _first_of_run(layer.expert_map)

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts=None, shared_experts_input=None):
        if layer.expert_map is None:
            ids = topk_ids
        elif self.first is None:
            ids = layer.expert_map[topk_ids]  # -1 on other ranks
        else:  # one small kernel; a look-up takes three
            ids = topk_ids - self.first
        return self.run(layer, x, ids, topk_weights, self.limit, layer.apply_router_weight_on_input)


class Nvfp4Config(EngineConfig, QuantizationConfig):
    engine = "vLLM", vllm.__version__, VLLM[1]

    @classmethod
    def override_quantization_method(cls, hf_quant_cfg, user_quant, hf_config=None):
        if not _is_asked_for(user_quant):
            return None
        return chosen(hf_quant_cfg, user_quant == NAME)

    def make_own(self, config):
        modelopt = str(config["quant_method"]).startswith("modelopt")
        return get_quantization_config("modelopt_mixed" if modelopt else "compressed-tensors").from_config(config)

    def apply_vllm_mapper(self, hf_to_vllm_mapper):
        self.schemes.rename(hf_to_vllm_mapper.apply_list)
        if self.own:
            self.own.apply_vllm_mapper(hf_to_vllm_mapper)

    def get_quant_method(self, layer, prefix):
        # vLLM keeps compiled models under a hash of its configuration, which does not see the environment. There is none
        # when attention layers ask again after new weights.
        if isinstance(more := getattr(get_current_vllm_config_or_none(), "additional_config", None), dict):
            more["nvfp4_activations"] = quantizes_activations(self.has_fp4_tensor_cores())
            more["nvfp4_arithmetic"] = arithmetic()
        if self.own:
            self.own.packed_modules_mapping = self.packed_modules_mapping
        if isinstance(layer, (Attention, MLAAttention)):
            return BaseKVCacheMethod(self) if self.schemes.kv_cache else None
        if isinstance(layer, (LinearBase, ParallelLMHead)):
            scheme = self.scheme(prefix, self.packed_modules_mapping.get(prefix.rpartition(".")[2], ()))
            if scheme is None:
                return UnquantizedLinearMethod()
            if scheme == OTHER:
                return self.own.get_quant_method(layer, prefix)
            return Nvfp4LinearMethod(self.schemes.form, scheme, prefix)
        if isinstance(layer, RoutedExperts):
            names = (layer.ckpt_gate_proj_name, layer.ckpt_up_proj_name, layer.ckpt_down_proj_name)
            scheme = self.scheme(prefix, [f"experts.0.{name}" for name in names if name])
            if scheme is None:
                return None
            if scheme == OTHER:
                return self.own.get_quant_method(layer, prefix)
            return Nvfp4ExpertsMethod(self.schemes.form, scheme, prefix, layer)
        return None


def register():
    """Makes `nvfp4` a method of quantization. May be called again."""
    register_quantization_config(NAME)(Nvfp4Config)
