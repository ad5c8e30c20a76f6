"""Scales of cached keys and values: what calibration sees of them, and what a recipe writes."""

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

import nvfp4
from calibrate_cases import SIZES, tokenizer_of_words, write_model, write_text_of_words
from nvfp4.calibrate import calibrate

TINY = dict(vocab_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, max_position_embeddings=64, intermediate_size=64)


def gpt_oss():
    """Has attention sinks, and so an attention of its own."""
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **TINY, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"]))


def deepseek():
    """Has multi-head latent attention, whose cache holds something else."""
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **TINY | dict(num_key_value_heads=4), n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
        moe_intermediate_size=32, kv_lora_rank=16, q_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=16,
        v_head_dim=16, first_k_dense_replace=1))


@pytest.fixture(scope="module", params=["llama", "qwen3_moe", "gpt_oss"])
def calibrated(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "gpt_oss":
        torch.manual_seed(3)
        gpt_oss().to(torch.bfloat16).save_pretrained(folder / "model")
        tokenizer_of_words().save_pretrained(folder / "model")
    else:
        write_model(folder / "model", request.param == "qwen3_moe")
    write_text_of_words(folder / "text.txt")
    calibrate(folder / "model", folder / "text.txt", folder / "stats", **SIZES)
    return folder


def amaxes_of_cache(folder):
    """By attention: the largest key and value that the model, run as a whole, puts into its cache."""
    from nvfp4.evaluate.text import windows

    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
    tokens = windows(folder / "text.txt", transformers.AutoTokenizer.from_pretrained(folder / "model"),
                     SIZES["windows"], SIZES["context"])[:, :-1]
    cache = transformers.DynamicCache()  # keeps all of a sliding window, too
    with torch.no_grad():
        model(tokens, past_key_values=cache, use_cache=True)
    return {f"model.layers.{i}.self_attn": (layer.keys.abs().amax(), layer.values.abs().amax())
            for i, layer in enumerate(cache.layers)}


def test_amaxes_are_those_of_what_the_model_caches(calibrated):
    seen = safetensors.load_file(calibrated / "stats")
    for attention, (keys, values) in amaxes_of_cache(calibrated).items():
        torch.testing.assert_close(seen.pop(f"{attention}.k_cache.amax"), keys.reshape(1), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(seen.pop(f"{attention}.v_cache.amax"), values.reshape(1), rtol=1e-4, atol=1e-6)
    assert not [name for name in seen if "_cache" in name]


@pytest.mark.parametrize(("format", "key", "value", "shape"), [
    ("modelopt", "k_proj.k_scale", "v_proj.v_scale", []), ("compressed-tensors", "k_scale", "v_scale", [1])])
def test_scales_are_amaxes_by_448(calibrated, tmp_path, format, key, value, shape):
    out = tmp_path / "out"
    nvfp4.quantize_checkpoint(calibrated / "model", out, recipe="nvidia", format=format,
                              statistics=calibrated / "stats")
    seen, found = safetensors.load_file(calibrated / "stats"), safetensors.load_file(out / "model.safetensors")
    for i in range(2):
        attention = f"model.layers.{i}.self_attn"
        for name, kind in ((key, "k"), (value, "v")):
            scale = found[f"{attention}.{name}"]
            assert list(scale.shape) == shape and scale.dtype == torch.float32
            assert scale.item() == (seen[f"{attention}.{kind}_cache.amax"] / 448).item()
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert config["kv_cache_scheme"]["num_bits"] == 8
    codes = {f["code"] for f in nvfp4.verify(out)["findings"]}
    assert not {c for c in codes if c.startswith("cache")}


def test_latent_attention_has_none(tmp_path):
    torch.manual_seed(3)
    deepseek().to(torch.bfloat16).save_pretrained(tmp_path / "model")
    tokenizer_of_words().save_pretrained(tmp_path / "model")
    write_text_of_words(tmp_path / "text.txt")
    calibrate(tmp_path / "model", tmp_path / "text.txt", tmp_path / "stats", **SIZES)
    assert not [name for name in safetensors.load_file(tmp_path / "stats") if "_cache" in name]
