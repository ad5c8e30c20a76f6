"""Run by test_sglang.py with a Python that has SGLang: its own layer classes with our methods, on a CPU.

SGLang's packages are for GPUs. Modules that it imports and does not call here are stood in for:
torchvision, which is for pictures, and sgl_kernel, its kernels.
"""

import json
import os
import sys
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from unittest.mock import MagicMock

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["SGLANG_USE_CPU_ENGINE"] = "1"

import nvfp4
import pytest
import torch
from transformers import AutoProcessor  # noqa: F401: sees that there is no torchvision

for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional", "torchvision.io",
             "sgl_kernel"):
    stand_in = MagicMock()
    stand_in.__spec__, stand_in.__path__ = ModuleSpec(name, None), []
    sys.modules.setdefault(name, stand_in)

import nvfp4.engines.sglang as engine
from checkpoints import (EXPERTS, FORMS, FUSED, SGLANG_TYPES, TOKENS, check_exclusions, check_linear_layers, distance,
                         experts_in, folder, make_partly, make_type, of_experts, tensors)
from sglang.srt.layers import linear
from sglang.srt.runtime_context import get_parallel


def config_of(folder):
    engine.register()
    return engine.Nvfp4Config.from_config(
        json.loads((folder / "config.json").read_text())["quantization_config"])


def test_it_is_chosen_only_when_asked_for(folder, monkeypatch):
    from sglang.srt.layers.quantization import QUANTIZATION_METHODS

    engine.register(), engine.register()
    assert next(iter(QUANTIZATION_METHODS)) == "nvfp4"
    config = json.loads((folder("qwen2", "w4a4", "modelopt") / "config.json").read_text())["quantization_config"]
    config["quant_method"] = "modelopt_fp4"  # as SGLang rewrites it
    asked = engine.Nvfp4Config.override_quantization_method
    monkeypatch.delenv("NVFP4_SGLANG", raising=False)
    assert (asked(config, None), asked(config, "nvfp4"), asked(config, "modelopt_fp4")) == (None, "nvfp4", None)
    monkeypatch.setenv("NVFP4_SGLANG", "1")
    assert asked(config, None) == "nvfp4"
    with pytest.raises(nvfp4.UnsupportedError, match="quant_method 'gptq'"):
        asked({"quant_method": "gptq"}, "nvfp4")


def test_exclusions_of_modelopt_in_sglang(tmp_path):
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptFp4Config
    from sglang.srt.layers.quantization.utils import is_layer_skipped

    own = ModelOptFp4Config.from_config(make_partly(tmp_path, "modelopt"))
    check_exclusions(lambda name: is_layer_skipped(name, own.exclude_modules, FUSED) or own.is_layer_excluded(name))


def test_exclusions_of_compressed_tensors_in_sglang(tmp_path):
    from sglang.srt.layers.quantization.compressed_tensors.utils import should_ignore_layer

    ignored = make_partly(tmp_path, "compressed-tensors")["ignore"]
    check_exclusions(lambda name: should_ignore_layer(name, ignored, FUSED))


def load(model, stored):
    """Loads tensors as SGLang does. Returns those that no parameter took, and parameters that got none."""
    from sglang.srt.model_loader.weight_utils import default_weight_loader

    lost, without, current = set(stored), set(), [""]

    def recorded(name, own):
        def weight_loader(*args, **more):
            lost.discard(current[0]), without.discard(name)
            return own(*args, **more)
        return weight_loader

    def given():
        for current[0], tensor in stored.items():
            yield current[0], tensor

    for name, parameter in model.named_parameters():
        without.add(name)
        own = recorded(name, getattr(parameter, "weight_loader", default_weight_loader))
        setattr(parameter, "_weight_loader" if "_weight_loader" in vars(parameter) else "weight_loader", own)
    model.load_weights(given())
    return lost, without


@pytest.mark.parametrize("model_type", SGLANG_TYPES)
def test_types_that_verify_calls_read(model_type, tmp_path):
    """SGLang's own class and methods take every tensor of the checkpoint, and every parameter gets one."""
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptFp4Config
    from sglang.srt.models.registry import ModelRegistry
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
    from transformers import AutoConfig

    at = make_type(tmp_path, model_type)
    assert nvfp4.verify(at, loader="sglang")["loaders"]["sglang"]["verdict"] == "reads"
    set_global_server_args_for_scheduler(ServerArgs(model_path=str(at), device="cpu"))
    config = AutoConfig.from_pretrained(at)
    chosen, architecture = ModelRegistry.resolve_model_cls(config.architectures)
    assert architecture == config.architectures[0]  # not its class for any model of transformers
    own = ModelOptFp4Config.from_config(json.loads((at / "config.json").read_text())["quantization_config"])
    own.packed_modules_mapping = getattr(chosen, "packed_modules_mapping", {})
    alone = SimpleNamespace(is_first_rank=True, is_last_rank=True, rank_in_group=0, world_size=1, rank=0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with on(0, 1, pp_group=alone, pp_rank=0, moe_ep_rank=0, moe_ep_size=1, moe_tp_rank=0, moe_tp_size=1):
            lost, without = load(chosen(config=config, quant_config=own), tensors(at))
    finally:
        torch.set_default_dtype(before)
    # W4A16 has no input scales, and a cache of BF16 no scales.
    assert not lost and all(name.endswith(("input_scale", "k_scale", "v_scale")) for name in without), (lost, without)


def on(rank, of, **more):
    """SGLang believes that this process is that one of so many."""
    group = SimpleNamespace(rank_in_group=rank, world_size=of)
    return get_parallel().override(tp_group=group, tp_rank=rank, tp_size=of, attn_tp_size=of,
                                   attn_tp_rank=rank, **more)


@pytest.mark.parametrize("scheme, format", FORMS)
@pytest.mark.parametrize("rank", range(4))
def test_linear_layers_of_sglang_on_four_ranks(folder, monkeypatch, scheme, format, rank):
    monkeypatch.setattr(linear, "get_tp_group", lambda: None, raising=False)  # SGLang 0.5.16 asks this, too
    at = folder("qwen2", scheme, format)
    with on(rank, 4, moe_ep_rank=0, moe_ep_size=1, moe_tp_rank=rank, moe_tp_size=4):
        check_linear_layers((linear.QKVParallelLinear, linear.MergedColumnParallelLinear,
                             linear.RowParallelLinear), at, config_of(at), rank, scheme)


@pytest.fixture(scope="module")
def engine_of(folder):
    """Creates SGLang's state of a process, as its command line does."""
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    set_global_server_args_for_scheduler(ServerArgs(
        model_path=str(folder("qwen3_moe", "w4a4", "modelopt")), device="cpu"))


@pytest.mark.parametrize("scheme, format", FORMS)
@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("by_expert", (False, True))
def test_experts_of_sglang_on_four_ranks(folder, engine_of, scheme, format, rank, by_expert):
    from sglang.srt.layers.moe.fused_moe_triton import FusedMoE

    at = folder("qwen3_moe", scheme, format)
    stored = experts_in(at)
    sizes = (dict(moe_ep_rank=rank, moe_ep_size=4, moe_tp_rank=0, moe_tp_size=1) if by_expert else
             dict(moe_ep_rank=0, moe_ep_size=1, moe_tp_rank=rank, moe_tp_size=4))
    with on(rank, 4, **sizes):
        experts = FusedMoE(4, 128, 192, layer_id=1, top_k=2, params_dtype=torch.float32,
                           quant_config=config_of(at), prefix=EXPERTS)
        mapping = FusedMoE.make_expert_params_mapping("gate_proj", "down_proj", "up_proj", 4)
        parameters = dict(experts.named_parameters())
        for name, tensor in stored.items():
            for parameter, weight, expert, shard in mapping:
                if f"{EXPERTS.removesuffix('experts')}{weight}" in name:
                    mapped = name.replace(weight, parameter)
                    given = parameters[mapped.removeprefix(f"{EXPERTS}.")]
                    given.weight_loader(given, tensor, mapped, shard_id=shard, expert_id=expert)
        experts.quant_method.process_weights_after_loading(experts)
        x, ids, weights = TOKENS
        local = ids - rank if by_expert else ids  # as its dispatcher gives them to a rank
        y = experts.quant_method.apply(experts, SimpleNamespace(
            hidden_states=x, topk_output=(weights, local.int(), None))).hidden_states
    expected = of_experts(stored, EXPERTS, x, ids, weights, rank, by_expert)
    # W4A4: SwiGLU of other last bits may give another code, in rare elements.
    bound = 2e-6 if scheme == "w4a16" else 0.05
    assert distance(y, expected) <= bound * max(float(expected.std()), 0.1)
