"""Run by test_vllm.py with the Python of build/venv-vllm: vLLM's own classes with our methods."""

import contextlib
import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # for apply_model below

import nvfp4
import pytest
import torch
import vllm
from checkpoints import (EXPERTS, FORMS, FUSED, MODELS, TOKENS, TYPES, check_exclusions, check_linear_layers, distance,
                         experts_in, folder, loaded, make, make_partly, make_type, of_experts, tensors)

PROMPT = [3, 4, 5, 6, 7, 8, 9, 10]


# --- served ---------------------------------------------------------------------------------------


def methods_of(model):
    """Returns the layers of a model with methods of this package, in the process of a rank."""
    found = {}
    for name, module in model.named_modules():
        method = type(getattr(module, "quant_method", None)).__name__
        if method.startswith("Nvfp4"):
            found[name] = method
    return found


@contextlib.contextmanager
def engine_of(folder, ranks, **options):
    """Yields vLLM with a model, on our kernels."""
    if ranks > 1:
        cpus = sorted(os.sched_getaffinity(0))
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(
            str(cpus[rank % len(cpus)]) for rank in range(ranks))
    llm = vllm.LLM(str(folder), quantization="nvfp4", dtype="bfloat16", tensor_parallel_size=ranks,
                   skip_tokenizer_init=True, max_model_len=128, max_num_seqs=4, seed=1, max_logprobs=512,
                   **options)
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
        os.environ.pop("VLLM_CPU_OMP_THREADS_BIND", None)


def serve(folder, ranks, weights=None, **options):
    """(methods of each rank, tokens, log probabilities [tokens, words]) of what vLLM says after PROMPT. `weights`: a
    folder whose weights replace those of the loaded model."""
    with engine_of(folder, ranks, **options) as llm:
        methods = llm.apply_model(methods_of)
        if weights:
            llm.collective_rpc(reload, args=(str(folder), str(weights)))
        out = llm.generate([{"prompt_token_ids": PROMPT}], vllm.SamplingParams(
            temperature=0, max_tokens=12, detokenize=False, ignore_eos=True, logprobs=512))[0].outputs[0]
        values = torch.tensor([[at[word].logprob for word in range(512)] for at in out.logprobs])
    return methods, list(out.token_ids), values


def reload(worker, served, source):
    """Gives a rank the new 16-bit weights of its model."""
    from pathlib import Path

    from nvfp4.engines.refit import quantize_weights
    worker.reload_weights(weights_iterator=quantize_weights(tensors(Path(source)).items(), served))


def expected(folder, dtype, tokens):
    """Log probabilities [windows, tokens, words] in transformers on our kernels."""
    import nvfp4.transformers  # noqa: F401
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor(tokens)).logits.float(), -1)


def check_serving(folder, ranks, layers, **options):
    methods, said, values = serve(folder, ranks, **options)
    assert len(methods) == ranks
    for found in methods:
        assert len(found) == layers, found
    exact, rounded = (expected(folder, dtype, [PROMPT + said[:-1]])[0, len(PROMPT) - 1:]
                      for dtype in (torch.float32, torch.bfloat16))
    # BF16 elsewhere rounds elsewhere: not further from FP32 than transformers in BF16, within a factor.
    assert distance(values, exact) <= 3 * distance(rounded, exact)
    assert distance(values, exact) <= float(exact.std()) / 4
    return methods


@pytest.mark.parametrize("model, scheme", [("llama", "w4a16"), ("qwen3_moe", "w4a4")])
def test_vllm_takes_new_weights(tmp_path, model, scheme):
    for name in ("served", "new"):
        (tmp_path / name).mkdir()
    served = make(tmp_path / "served", model, scheme, "modelopt")
    torch.manual_seed(2)
    MODELS[model]().to(torch.bfloat16).save_pretrained(tmp_path / "new" / model)
    new = make(tmp_path / "new", model, scheme, "modelopt")
    options = dict(enforce_eager=True)
    _, tokens, values = serve(served, 1, tmp_path / "new" / model, **options)
    _, others, expected = serve(new, 1, **options)
    assert tokens == others and torch.equal(values, expected)
    assert tokens != serve(served, 1, **options)[1]


def distilled(at):
    """Returns the folders of a checkpoint with W4A16 and W4A4 layers, before and after some steps of distillation."""
    import transformers
    from nvfp4.torch import export, prepare

    (at / "both.yaml").write_text("rules:\n- {kind: attention, action: w4a16}\n")
    checkpoint = make(at, "llama", "w4a4", "modelopt", recipe=at / "both.yaml")
    teacher, student = (transformers.AutoModelForCausalLM.from_pretrained(at / "llama", dtype=torch.float32)
                        for _ in range(2))
    prepare(student, checkpoint)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    tokens = torch.randint(512, (8, 32), generator=torch.Generator().manual_seed(1))
    for _ in range(8):
        with torch.no_grad():
            p = torch.log_softmax(teacher(tokens).logits, -1)
        torch.nn.functional.kl_div(torch.log_softmax(student(tokens).logits, -1), p, reduction="sum", log_target=True).backward()
        optimizer.step()
        optimizer.zero_grad()
    export(student, at / "distilled")
    return checkpoint, at / "distilled"


def test_a_distilled_model_in_vllm(tmp_path):
    """Log probabilities of the words of 16 windows, as transformers has them."""
    checkpoint, folder = distilled(tmp_path)
    text = torch.randint(512, (16, 64), generator=torch.Generator().manual_seed(2)).tolist()
    with engine_of(folder, 1, enforce_eager=True) as llm:
        out = llm.generate([{"prompt_token_ids": row} for row in text],
                           vllm.SamplingParams(max_tokens=1, detokenize=False, prompt_logprobs=0))
    values = torch.tensor([[at[word].logprob for word, at in zip(row[1:], one.prompt_logprobs[1:])]
                           for row, one in zip(text, out)])
    words = torch.tensor(text)[:, 1:, None]
    exact, before = (expected(at, torch.float32, text)[:, :-1].gather(-1, words)[..., 0] for at in (folder, checkpoint))
    # In BF16 transformers itself is 0.012 from FP32.
    assert distance(values, exact) <= 0.02 < distance(before, exact) / 2


def test_vllm_serves_a_dense_model_compiled(folder):
    """torch.compile, as vLLM does it by default: the product is a custom operator with a fake kernel."""
    methods = check_serving(folder("llama", "w4a16", "modelopt"), 1, 8)
    assert set(methods[0].values()) == {"Nvfp4LinearMethod"}


def test_vllm_serves_experts_on_two_ranks(folder):
    """Attention is cut in two, and so are the experts."""
    methods = check_serving(folder("qwen3_moe", "w4a4", "compressed-tensors"), 2, 6, enforce_eager=True)
    assert list(methods[0].values()).count("Nvfp4ExpertsMethod") == 2


# --- chosen ---------------------------------------------------------------------------------------


def chosen(folder, quantization):
    return vllm.config.ModelConfig(str(folder), quantization=quantization).quantization


def test_it_is_chosen_only_when_asked_for(folder, monkeypatch):
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    modelopt = folder("llama", "w4a4", "modelopt")
    other = folder("llama", "w4a16", "compressed-tensors")
    monkeypatch.delenv("NVFP4_VLLM", raising=False)
    assert (chosen(modelopt, None), chosen(other, None)) == ("modelopt_fp4", "compressed-tensors")
    assert (chosen(modelopt, "nvfp4"), chosen(other, "nvfp4")) == ("nvfp4", "nvfp4")
    monkeypatch.setenv("NVFP4_VLLM", "1")
    assert (chosen(modelopt, None), chosen(other, None)) == ("nvfp4", "nvfp4")
    assert chosen(modelopt, "modelopt_fp4") == "modelopt_fp4"


def test_checkpoints_of_another_kind_are_refused_by_name(folder, tmp_path):
    import nvfp4.engines.vllm as engine

    engine.register()
    fp8 = {"quant_method": "modelopt", "quant_algo": "FP8"}
    with pytest.raises(nvfp4.UnsupportedError, match="quantization nvfp4: .*quant_algo 'FP8'"):
        engine.Nvfp4Config.override_quantization_method(fp8, "nvfp4")
    assert engine.Nvfp4Config.override_quantization_method(fp8, None) is None


# --- layers on each of four ranks -----------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """on(rank, of): makes vLLM believe that this process is that one of so many."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    file = tmp_path_factory.mktemp("group") / "store"
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{file}", 0, "gloo")
        parallel_state.initialize_model_parallel(1)
        group = parallel_state.get_tp_group()

        def on(rank, of):
            group.rank_in_group, group.world_size = rank, of

        yield on
        on(0, 1)


def load(folder, quantization):
    """(model, parameters without a tensor): vLLM's own class of the model, with the weights of a checkpoint."""
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    config = EngineArgs(str(folder), quantization=quantization, dtype="bfloat16", enforce_eager=True,
                        skip_tokenizer_init=True, max_model_len=128).create_engine_config()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with set_current_vllm_config(config):
            model = initialize_model(vllm_config=config)
            loader = get_model_loader(config.load_config)
            loaded = model.load_weights(loader.get_all_weights(config.model_config, model))
    finally:
        torch.set_default_dtype(before)
    return model, {name for name, _ in model.named_parameters()} - loaded


@pytest.mark.parametrize("model_type", TYPES)
def test_types_that_verify_calls_read(model_type, ranks, tmp_path):
    """vLLM's own class takes every tensor of the checkpoint, and every parameter gets one."""
    folder = make_type(tmp_path, model_type)
    assert nvfp4.verify(folder, loader="vllm")["loaders"]["vllm"]["verdict"] == "reads"
    model, without = load(folder, "nvfp4")
    assert type(model).__name__ in json.loads((folder / "config.json").read_text())["architectures"] or \
        model_type in ("cohere2", "granite_swa", "granitemoe_swa", "ministral3")  # another type has the class
    assert not [name for name in without if "input_scale" not in name]  # those are of W4A4 alone


@pytest.mark.parametrize("format", ("modelopt", "compressed-tensors"))
def test_layers_of_both_schemes_with_vllms_own_methods(format, ranks, tmp_path, monkeypatch):
    """W4A16 attention beside W4A4: vLLM's own class builds each layer for its kind, and loads it."""
    from unittest.mock import MagicMock

    from vllm.model_executor.layers.quantization import modelopt
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import compressed_tensors_w4a4_nvfp4

    # vLLM has no NVFP4 kernel for CPUs; weights are loaded without one.
    monkeypatch.setattr(modelopt, "select_linear_kernel", MagicMock())
    monkeypatch.setattr(compressed_tensors_w4a4_nvfp4, "init_nvfp4_linear_kernel", MagicMock())
    (tmp_path / "both.yaml").write_text("rules:\n- {kind: attention, action: w4a16}\n")
    folder = make(tmp_path, "llama", "w4a4", format, recipe=tmp_path / "both.yaml")
    model, without = load(folder, None)
    layers = {name: module for name, module in model.named_modules() if name.endswith("_proj")}
    weights_only = {name for name, m in layers.items() if
                    (m.scheme.use_a16 if hasattr(m, "scheme") else m.quant_method.spec.activation is None)}
    assert weights_only == {name for name in layers if "self_attn" in name} and len(weights_only) == 4
    # ModelOpt's method has the input scale of W4A16, and drops it.
    dropped = {f"{name}.input_scale" for name in weights_only} if format == "modelopt" else set()
    assert {name for name in without if "_proj." in name} == dropped


def config_of(folder):
    import nvfp4.engines.vllm as engine

    engine.register()
    config = engine.Nvfp4Config.from_config(
        json.loads((folder / "config.json").read_text())["quantization_config"])
    config.packed_modules_mapping = FUSED
    return config


def test_exclusions_of_modelopt_in_vllm(tmp_path):
    from vllm.model_executor.layers.quantization import get_quantization_config

    own = get_quantization_config("modelopt_fp4").from_config(make_partly(tmp_path, "modelopt"))
    own.packed_modules_mapping = FUSED
    check_exclusions(own.is_layer_excluded)


def test_exclusions_of_compressed_tensors_in_vllm(tmp_path):
    from vllm.model_executor.layers.quantization.compressed_tensors.utils import should_ignore_layer

    ignored = make_partly(tmp_path, "compressed-tensors")["ignore"]
    check_exclusions(lambda name: should_ignore_layer(name, ignored, FUSED))


#: recipe -> model_type, a layer of the model, one of the draft, their modules, the names that vLLM asks for, and what it
#: fuses. Sources: vLLM's deepseek_mtp.py, qwen3_5_mtp.py and nemotron_h_mtp.py.
QKV = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
MLA = ["self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj",
       "self_attn.o_proj"]
MLP = [f"{part}.{n}_proj" for part in ("mlp.experts.0", "mlp.experts.1", "mlp.shared_experts")
       for n in ("gate", "up", "down")]
ASKED = ["mlp.experts", "mlp.shared_experts.gate_up_proj", "mlp.shared_experts.down_proj", "self_attn.o_proj"]
FUSED_MLA = FUSED | {"fused_qkv_a_proj": ["q_a_proj", "kv_a_proj_with_mqa"]}
MIXER = [f"mixer.{n}" for n in ("q_proj", "k_proj", "v_proj", "o_proj", "experts.0.up_proj", "experts.0.down_proj",
                                "shared_experts.up_proj", "shared_experts.down_proj", "in_proj", "out_proj")]
ASKED_MIXER = ["mixer.qkv_proj", "mixer.o_proj", "mixer.experts", "mixer.shared_experts.up_proj", "eh_proj"]
DEEPSEEK = ("model.layers.0", "model.layers.1", [*MLA, *MLP], ["self_attn.fused_qkv_a_proj", "self_attn.q_b_proj",
            "self_attn.kv_b_proj", *ASKED, "eh_proj"], FUSED_MLA)
DRAFTS = {
    "deepseek-r1": ("deepseek_v3", *DEEPSEEK), "deepseek-v3.2": ("deepseek_v32", *DEEPSEEK),
    "glm-5": ("glm_moe_dsa", *DEEPSEEK), "glm-5.1": ("glm_moe_dsa", *DEEPSEEK),
    "qwen3.5": ("qwen3_5_moe", "model.language_model.layers.0", "mtp.layers.0", [*QKV, *MLP],
                ["self_attn.qkv_proj", *ASKED], FUSED),
    "qwen3.6": ("qwen3_5_moe", "model.language_model.layers.0", "mtp.layers.0", [*QKV, *MLP],
                ["self_attn.qkv_proj", *ASKED], FUSED),
    "nemotron-3-super": ("nemotron_h", "backbone.layers.0", "mtp.layers.0", MIXER, ASKED_MIXER, FUSED),
    "nemotron-3.5": ("nemotron_h", "backbone.layers.0", "mtp.layers.0", MIXER, ASKED_MIXER, FUSED),
}


@pytest.mark.parametrize("recipe", DRAFTS)
@pytest.mark.parametrize("format", ["modelopt", "compressed-tensors"])
def test_exclusions_of_drafts_in_vllm(tmp_path, recipe, format):
    from safetensors.torch import save_file
    from vllm.model_executor.layers.quantization import get_quantization_config
    from vllm.model_executor.layers.quantization.compressed_tensors.utils import should_ignore_layer

    model_type, layer, draft, modules, asked, fused = DRAFTS[recipe]
    joint = "mtp.fc" if model_type == "qwen3_5_moe" else f"{draft}.eh_proj"
    names = [f"{at}.{module}" for at in (layer, draft) for module in modules] + [joint, "lm_head"]
    (tmp_path / "source").mkdir()
    save_file({f"{name}.weight": torch.randn(64, 64).bfloat16() for name in names},
              tmp_path / "source/model.safetensors")
    (tmp_path / "source/config.json").write_text(json.dumps({
        "model_type": model_type, "hidden_size": 64, "num_hidden_layers": 1, "num_nextn_predict_layers": 1}))
    nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "out", recipe=recipe, format=format)
    quantization = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    if format == "compressed-tensors":
        is_excluded = lambda name: should_ignore_layer(name, quantization["ignore"], fused)
    else:
        mixed = quantization["quant_algo"] == "MIXED_PRECISION"
        own = get_quantization_config("modelopt_mixed" if mixed else "modelopt_fp4").from_config(quantization)
        own.packed_modules_mapping = fused
        is_excluded = lambda name: own.is_layer_excluded(name) or mixed and own._resolve_quant_algo(name) is None
    for name in [*(f"{draft}.{module}" for module in asked), joint]:
        assert is_excluded(name), name
    experts = "mixer.experts" if model_type == "nemotron_h" else "mlp.experts"
    assert not is_excluded(f"{layer}.{experts}" if format == "modelopt" else f"{layer}.{experts}.0.down_proj")


@pytest.mark.parametrize("scheme, format", FORMS)
@pytest.mark.parametrize("rank", range(4))
def test_linear_layers_of_vllm_on_four_ranks(folder, ranks, scheme, format, rank):
    from vllm.model_executor.layers.linear import (MergedColumnParallelLinear, QKVParallelLinear,
                                                   RowParallelLinear)

    at = folder("qwen2", scheme, format)
    ranks(rank, 4)
    check_linear_layers((QKVParallelLinear, MergedColumnParallelLinear, RowParallelLinear), at, config_of(at),
                        rank, scheme)


@pytest.mark.parametrize("scheme, format", FORMS)
@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("by_expert", (False, True))
def test_experts_of_vllm_on_four_ranks(folder, ranks, scheme, format, rank, by_expert):
    """Each expert cut in four, or an expert on each rank."""
    from vllm.config import get_current_vllm_config
    from vllm.model_executor.layers import fused_moe

    make_experts = getattr(fused_moe, "FusedMoEFactory", None) or fused_moe.FusedMoE
    at = folder("qwen3_moe", scheme, format)
    stored, base = experts_in(at), EXPERTS
    ranks(rank, 4)
    parallel = get_current_vllm_config().parallel_config
    before, parallel.enable_expert_parallel = parallel.enable_expert_parallel, by_expert
    context = get_current_vllm_config().compilation_config.static_forward_context
    context.clear()
    try:
        experts = make_experts(4, 2, 128, 192, params_dtype=torch.float32, quant_config=config_of(at),
                               prefix=base).routed_experts
    finally:
        parallel.enable_expert_parallel = before
    assert "ExpertsMethod" in type(experts.quant_method).__name__
    given = ((name.removeprefix(base + "."), t) for name, t in stored.items() if name.startswith(base + "."))
    assert len(set(experts.load_weights(given))) >= 6
    experts.quant_method.process_weights_after_loading(experts)

    x, ids, weights = TOKENS
    y = experts.forward_modular(x=x, topk_weights=weights, topk_ids=ids.int(), shared_experts=None,
                                shared_experts_input=None)
    expected = of_experts(stored, base, x, ids, weights, rank, by_expert)
    # W4A4: SwiGLU of other last bits may give another code, in rare elements.
    bound = 2e-6 if scheme == "w4a16" else 0.05
    assert distance(y, expected) <= bound * max(float(expected.std()), 0.1)


@pytest.mark.parametrize("expert_map, first", (
    (None, 0), ((0, 1, -1, -1), 0), ((-1, -1, 0, 1), 2), ((-1, 0, -1, 1), None), ((1, 0, -1, -1), None)))
def test_first_of_consecutive_experts(expert_map, first):
    import nvfp4.engines.vllm as engine

    assert engine._first_of_run(None if expert_map is None else torch.tensor(expert_map)) == first


def test_methods_are_chosen_without_a_current_config(folder):
    """Attention layers ask so after reload_weights()."""
    assert config_of(folder("llama", "w4a16", "modelopt")).get_quant_method(torch.nn.Identity(), "x") is None


def test_uncuttable_weights_are_refused_before_loading(folder, ranks):
    from vllm.model_executor.layers.linear import RowParallelLinear

    config = config_of(folder("llama", "w4a4", "modelopt"))
    ranks(0, 8)
    name = "model.layers.0.mlp.down_proj"
    with pytest.raises(nvfp4.ShapeError, match=f"{name}: 40 of 320 inputs on each rank, must be a multiple of 16"):
        RowParallelLinear(320, 128, bias=False, quant_config=config, params_dtype=torch.float32, prefix=name)


def test_scales_that_are_missing_are_named(folder, ranks):
    from vllm.model_executor.layers.linear import RowParallelLinear

    at = folder("llama", "w4a4", "modelopt")
    ranks(0, 1)
    name = "model.layers.0.mlp.down_proj"
    for lost, message in ((f"{name}.weight_scale", "no 'weight_scale' was loaded"),
                          (f"{name}.weight_scale_2", "no 'weight_scale_2' was loaded")):
        stored = {n: t for n, t in tensors(at).items() if n != lost}
        layer = RowParallelLinear(320, 128, bias=False, quant_config=config_of(at),
                                  params_dtype=torch.float32, prefix=name)
        with pytest.raises(nvfp4.FormatError, match=f"{name}: {message}"):
            loaded(layer, stored, {name: None})


def test_other_layers_have_the_methods_of_vllm(ranks):
    import nvfp4.engines.vllm as engine
    from vllm.model_executor.layers.linear import RowParallelLinear

    engine.register()
    ranks(0, 1)
    modelopt = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
        "a.o_proj": {"quant_algo": "NVFP4"}, "a.down_proj": {"quant_algo": "FP8"}}}
    of_int8 = {"num_bits": 8, "type": "int", "symmetric": True}
    int8 = {"format": "int-quantized", "weights": {**of_int8, "strategy": "channel", "dynamic": False},
            "input_activations": {**of_int8, "strategy": "token", "dynamic": True}}
    nvfp4_group = {"format": "nvfp4-pack-quantized",
                   "weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}}
    groups = {"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": [], "config_groups": {
        "group_0": {**nvfp4_group, "targets": ["re:.*o_proj$"]}, "group_1": {**int8, "targets": ["re:.*down_proj$"]}}}
    for declared, own in ((modelopt, "ModelOptLinearMethod"), (groups, "CompressedTensorsLinearMethod")):
        config = engine.Nvfp4Config.from_config(declared)
        kinds = [type(config.get_quant_method(RowParallelLinear(64, 64, prefix=name), name)).__name__
                 for name in ("a.o_proj", "a.down_proj")]
        assert kinds == ["Nvfp4LinearMethod", own]


@pytest.mark.parametrize("variable, choices", (
    ("NVFP4_ACTIVATIONS", ("nvfp4", "bf16", "nvfp4")), ("NVFP4_ARITHMETIC", ("fp8", "", "fp8"))))
def test_choices_by_the_environment_have_other_hashes(folder, ranks, monkeypatch, variable, choices):
    """vLLM finds a compiled model by the hash of its configuration."""
    from vllm.config import get_current_vllm_config
    from vllm.model_executor.layers.linear import RowParallelLinear

    ranks(0, 1)
    hashes = set()
    for choice in choices:
        monkeypatch.setenv(variable, choice)
        RowParallelLinear(320, 128, bias=False, quant_config=config_of(folder("llama", "w4a4", "modelopt")),
                          params_dtype=torch.float32, prefix="model.layers.0.mlp.down_proj")
        hashes.add(get_current_vllm_config().compute_hash())
    assert len(hashes) == 2


def test_what_is_not_quantized_stays_as_it_is(folder, ranks):
    from vllm.model_executor.layers.linear import ColumnParallelLinear

    config = config_of(folder("llama", "w4a4", "modelopt"))
    ranks(0, 1)
    layer = ColumnParallelLinear(128, 512, bias=False, quant_config=config, params_dtype=torch.float32,
                                 prefix="lm_head")
    assert type(layer.quant_method).__name__ == "UnquantizedLinearMethod"
