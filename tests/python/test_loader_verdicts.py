"""Answers of transformers to `nvfp4 verify` are what loading does, with and without our quantizer."""

import json
import subprocess
import sys

import pytest

import nvfp4
from command import SCRIPT

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("compressed_tensors")
registered = "nvfp4.transformers" in sys.modules
from nvfp4.transformers import ask, registry  # noqa: E402

if not registered:
    registry.unregister()  # for the other files of this process
pytestmark = pytest.mark.usefixtures("without_our_backend")
slow = pytest.mark.slow

SIZES = dict(vocab_size=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
DECODER = dict(SIZES, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, head_dim=16)
EXPERTS = dict(DECODER, num_experts=4, num_local_experts=4, num_experts_per_tok=2)
HEAD_DIM = {k: v for k, v in DECODER.items() if k != "head_dim"}
LATENT = dict(EXPERTS, num_key_value_heads=4, moe_intermediate_size=64, kv_lora_rank=32,
              q_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, n_group=1,
              topk_group=1, first_k_dense_replace=1)
INKLING2 = dict(SIZES, unpadded_vocab_size=256, hidden_size=64, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=16, swa_num_attention_heads=4,
                swa_num_key_value_heads=2, swa_head_dim=16, moe_intermediate_size=64,
                n_routed_experts=4, num_experts_per_tok=2, rel_extent=32,
                n_layers_per_attn_res_block=1)
T5 = dict(SIZES, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
          decoder_start_token_id=0)

#: type -> (kind of model, configuration, verdict of transformers, verdict with our quantizer)
TYPES = {
    "llama": ("CausalLM", DECODER, "reads", "reads"),
    "qwen3": ("CausalLM", DECODER, "reads", "reads"),
    "llama4_text": ("CausalLM", dict(EXPERTS, intermediate_size_mlp=128,
                                     interleave_moe_layer_step=1), "reads", "reads"),
    "mixtral": ("CausalLM", EXPERTS, "misreads", "reads"),
    "gpt_oss": ("CausalLM", EXPERTS, "misreads", "misreads"),
    "t5": ("Seq2SeqLM", T5, "refuses", "refuses"),
    "mt5": ("Seq2SeqLM", T5, "refuses", "refuses"),
    "falcon": ("CausalLM", HEAD_DIM, "refuses", "refuses"),
    "mamba2": ("CausalLM", dict(SIZES, hidden_size=64, num_hidden_layers=2, head_dim=16,
                                num_heads=8, state_size=16, n_groups=1), "refuses", "refuses"),
    "modernbert": ("MaskedLM", HEAD_DIM, "refuses", "refuses"),
    # Short convolutions that are merged as they are loaded.
    "olmo_hybrid": ("CausalLM", dict(HEAD_DIM, layer_types=["linear_attention", "full_attention"]),
                    "refuses", "reads"),
    "bailing_hybrid": ("CausalLM", dict(LATENT, num_mtp_layers=0, layer_group_size=2),
                       "refuses", "reads"),
    "eomt": ("UniversalSegmentation",
             dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=64,
                  patch_size=16, num_blocks=1, num_queries=8), "refuses", "reads"),
    "inkling2": ("ImageTextToText",
                 dict(text_config=INKLING2, image_token_id=255,
                      vision_config=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                         text_hidden_size=64, projection_hidden_dim=64)),
                 "refuses", "reads"),
}

#: type -> the same, where its experts are kept
KEPT_EXPERTS = {
    "qwen3_moe": ("CausalLM", dict(EXPERTS, moe_intermediate_size=64), "refuses", "reads"),
    "mixtral": ("CausalLM", EXPERTS, "refuses", "reads"),
    "deepseek_v3": ("CausalLM", dict(LATENT, n_routed_experts=4), "refuses", "reads"),
    "llama4_text": ("CausalLM", dict(EXPERTS, intermediate_size_mlp=128, num_experts_per_tok=1,
                                     interleave_moe_layer_step=1), "misreads", "misreads"),
    "gpt_oss": ("CausalLM", EXPERTS, "reads", "reads"),
    "granitemoe": ("CausalLM", HEAD_DIM | dict(num_local_experts=4, num_experts_per_tok=2),
                   "reads", "reads"),
}
QUICK = ("llama", "mixtral", "t5")
#: Types that vLLM 0.32 lists, and types that it does not list; all of them with this configuration.
LISTED = """
apertus cohere cohere2 cohere2_moe ernie4_5 ernie4_5_moe exaone4 exaone_moe gemma gemma3_text glm4 glm4_moe
gpt_oss granite granitemoe hy_v3 laguna lfm2 llama llama4_text minimax_m2 mistral mixtral nemotron olmoe phi3
qwen2 qwen2_moe qwen3 qwen3_moe
""".split()
NOT_LISTED = """
apertus1p5_text arcee aria_text beam bert biogpt bitnet cwm diffllama doge dory electra flint glm gpt_bigcode
gpt_neox helium hunyuan_v1_dense hunyuan_v1_moe jais2 kolibri1 lara_mini mellum minimax ministral olmo2 olmo3
phi seed_oss smollm3
""".split()
TINY = dict(EXPERTS, n_routed_experts=4, moe_intermediate_size=64, tie_word_embeddings=False,
            max_position_embeddings=128)
KEEP = ["*experts.*", "*block_sparse_moe*"]


def make(model_type, kind, sizes, folder):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    auto = getattr(transformers, f"AutoModelFor{kind}")
    model = auto.from_config(config, dtype=torch.bfloat16).eval()
    for name, p in model.named_parameters():
        if p.dim() >= 2 and "norm" not in name:
            torch.nn.init.normal_(p, std=0.05)
    model.save_pretrained(folder)
    # What stays FP32 does so where it is loaded.
    return auto, auto.from_pretrained(folder, dtype=torch.bfloat16).eval()


def logits(model):
    tokens = torch.arange(3, 35).reshape(2, 16)
    inputs = {"input_ids": tokens}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens + 2
    with torch.no_grad():
        return model(**inputs).logits.float()


def verdict_of_loading(auto, folder, source):
    """A misread model has weights of its own, or is far from its source: four bits cost a third."""
    try:
        model, info = auto.from_pretrained(folder, dtype=torch.bfloat16, output_loading_info=True)
    except (AttributeError, RuntimeError, nvfp4.UnsupportedError):
        return "refuses"
    if info["missing_keys"]:
        return "misreads"
    if auto is transformers.AutoModelForUniversalSegmentation:
        return "reads"  # pictures
    expected = logits(source)
    away = (logits(model.eval()) - expected).norm() / expected.norm()
    return "reads" if away < 0.5 else "misreads"


def loaded(auto, folder, source, loader):
    """Returns the verdict of loading with the quantizer of `loader`."""
    try:
        if loader == "transformers+nvfp4":
            registry.register()
        return verdict_of_loading(auto, folder, source)
    finally:
        registry.unregister()


def check(model_type, kind, sizes, theirs, ours, ignore, tmp_path):
    auto, source = make(model_type, kind, sizes, tmp_path / "source")
    out = tmp_path / "out"
    nvfp4.quantize_checkpoint(tmp_path / "source", out, scheme="w4a16", format="compressed-tensors", ignore=ignore)
    for loader, expected in (("transformers", theirs), ("transformers+nvfp4", ours)):
        answer = ask.ask(str(out), loader)
        assert answer["verdict"] == expected, answer
        assert loaded(auto, out, source, loader) == expected


@pytest.mark.parametrize("model_type", [t if t in QUICK else pytest.param(t, marks=slow) for t in TYPES])
def test_the_answer_is_what_loading_does(model_type, tmp_path):
    check(model_type, *TYPES[model_type], [], tmp_path)


@pytest.mark.parametrize("model_type", [t if t in QUICK else pytest.param(t, marks=slow) for t in KEPT_EXPERTS])
def test_so_is_that_about_experts_that_are_kept(model_type, tmp_path):
    check(model_type, *KEPT_EXPERTS[model_type], KEEP, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", LISTED + NOT_LISTED)
def test_sixty_types_answer_as_they_load(model_type, tmp_path):
    if model_type not in transformers.CONFIG_MAPPING and transformers.__version__ < "5.24":
        pytest.skip(f"unknown type: {model_type}")  # test_transformers_releases.py
    auto, source = make(model_type, "CausalLM", TINY, tmp_path / "source")
    out = tmp_path / "out"
    nvfp4.quantize_checkpoint(tmp_path / "source", out, scheme="w4a16", format="compressed-tensors")
    vllm = nvfp4.verify(out)["loaders"]["vllm"]
    assert ("does not list" in vllm["text"]) == (model_type in NOT_LISTED), vllm
    for loader in ("transformers", "transformers+nvfp4"):
        answer = ask.ask(str(out), loader)
        assert answer["verdict"] == loaded(auto, out, source, loader), answer


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    make("llama", *TYPES["llama"][:2], folder / "source")
    nvfp4.quantize_checkpoint(folder / "source", folder / "out", scheme="w4a16", format="compressed-tensors")
    return folder / "out"


def edited(llama, tmp_path, **config):
    """The folder, with other entries in config.json."""
    folder = tmp_path / "edited"
    folder.mkdir()
    for file in llama.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    text = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(text))
    return folder


@pytest.mark.parametrize("config, verdict", [
    (dict(architectures=["FooForBar"]), "unknown"), (dict(architectures=["os"]), "unknown"),
    (dict(model_type="foo"), "refuses"), (dict(num_hidden_layers=3), "misreads"),
    (dict(vocab_size=300), "refuses"), (dict(architectures=None), "unknown")])
def test_configurations_that_fit_no_model(llama, tmp_path, config, verdict):
    folder = edited(llama, tmp_path, **config)
    for loader in ("transformers", "transformers+nvfp4"):
        answer = ask.ask(str(folder), loader)
        assert answer["verdict"] == verdict and answer["text"], answer


def test_a_missing_package_is_named(llama, monkeypatch):
    monkeypatch.setattr("transformers.utils.quantization_config.is_compressed_tensors_available", lambda: False)
    for loader in ("transformers", "transformers+nvfp4"):
        answer = ask.ask(str(llama), loader)
        assert answer["verdict"] == "unknown" and "pip install compressed-tensors" in answer["text"], answer


def test_code_of_the_folder_is_not_run(llama, tmp_path):
    folder = edited(llama, tmp_path, model_type="foo", auto_map={"AutoConfig": "code.Config"})
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert ask.ask(str(folder), "transformers")["verdict"] == "unknown"
    assert not (tmp_path / "ran").exists()


def test_names_of_lost_tensors_are_told(llama, tmp_path):
    folder = edited(llama, tmp_path, num_hidden_layers=1)
    answer = ask.ask(str(folder), "transformers")
    assert answer["verdict"] == "reads"
    assert all(name.startswith("model.layers.1.") for name in answer["tensors"]["unexpected"])
    assert "it leaves out" in answer["text"]


def test_the_command_and_the_function_ask(llama, tmp_path):
    (tmp_path / "transformers.py").write_text("raise SystemExit('of the working folder')")
    for loader in ("transformers", "transformers+nvfp4"):
        run = subprocess.run([*SCRIPT, "verify", llama, "--for", loader, "--json"], cwd=tmp_path, capture_output=True)
        report = json.loads(run.stdout)
        assert run.returncode == 0, report
        assert report["loaders"][loader]["version"].startswith(f"transformers {transformers.__version__}")
        assert report["loaders"][loader]["verdict"] == "reads"
    report = nvfp4.verify(llama, loaders=["transformers"])
    verdicts = {loader: answer["verdict"] for loader, answer in report["loaders"].items()}
    assert (verdicts["transformers"], verdicts["transformers+nvfp4"]) == ("reads", "unknown")
    with pytest.raises(nvfp4.InvalidValueError, match="loaders"):
        nvfp4.verify(llama, loaders=["vllm"])
