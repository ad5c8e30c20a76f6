"""nvfp4.transformers: what `nvfp4 convert` makes of GGUF files, ours and those of other programs."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
gguf = pytest.importorskip("gguf", reason="the Python package gguf is missing")

import nvfp4
from test_nvfp4_transformers import FORMATS, distance, load, logits, ours


def without_our_keys(source, to):
    """The same GGUF file as another program would write it."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(to, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if name.startswith(("nvfp4.", "GGUF.")) or name == "general.architecture":
            continue
        inner = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("family", ("llama", "mixtral"))
@pytest.mark.parametrize("foreign", (False, True))
def test_what_was_converted_from_gguf_loads(tmp_path, family, format, foreign):
    sizes = dict(hidden_size=128, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, vocab_size=512, tie_word_embeddings=False, pad_token_id=None,
                 bos_token_id=1, eos_token_id=2)
    torch.manual_seed(1)
    model = (transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)) if family == "llama" else
             transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, num_local_experts=4)))
    model.to(torch.bfloat16).save_pretrained(tmp_path / "source")
    nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "quantized", scheme="w4a16")
    nvfp4.convert(tmp_path / "quantized", tmp_path / "model.gguf", to="gguf")
    file = tmp_path / "model.gguf"
    if foreign:
        file = tmp_path / "foreign.gguf"
        without_our_keys(tmp_path / "model.gguf", file)
    nvfp4.convert(file, tmp_path / "again", to=format)
    loaded = load(tmp_path / "again")
    assert len(ours(loaded)) == len(ours(load(tmp_path / "quantized"))) >= 8
    # compressed-tensors stores 1 / the global scale, which may lead back to a neighbour.
    difference = distance(logits(loaded), logits(load(tmp_path / "quantized")))
    assert difference <= 1e-6 * float(logits(loaded).std())


SIZES = dict(hidden_size=128, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=32, vocab_size=512, max_position_embeddings=256, tie_word_embeddings=False, pad_token_id=None,
             bos_token_id=1, eos_token_id=2)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=192)
LATENT = dict(num_key_value_heads=4, moe_intermediate_size=192, n_routed_experts=4, num_experts_per_tok=2,
              n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=64, qk_rope_head_dim=32, qk_nope_head_dim=32,
              v_head_dim=32, routed_scaling_factor=1.5)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}

#: what another program's file must say: class without its ending, arguments of the configuration
FOREIGN = {
    "llama3 rope, biases": ("Llama", SIZES | dict(rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True)),
    "linear rope": ("Qwen2", SIZES | dict(rope_parameters=YARN | {"rope_type": "linear"})),
    "yarn": ("Qwen3", SIZES | dict(rope_parameters=YARN | {"attention_factor": 1.2, "beta_fast": 16.0},
                                   attention_bias=True)),
    "qwen3_moe": ("Qwen3Moe", SIZES | EXPERTS | dict(norm_topk_prob=True)),
    "qwen2_moe": ("Qwen2Moe", SIZES | EXPERTS | dict(shared_expert_intermediate_size=256)),
    "deepseek_v2": ("DeepseekV2", SIZES | LATENT | dict(q_lora_rank=None)),
    "deepseek_v3": ("DeepseekV3", SIZES | LATENT | dict(
        q_lora_rank=64, n_group=2, topk_group=1, rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0})),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_compute_what_the_model_does(name, tmp_path):
    kind, arguments = FOREIGN[name]
    torch.manual_seed(1)
    model = getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**arguments))
    for key, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if "bias" in key:  # zeros would hide a bias that is lost
            torch.nn.init.normal_(tensor.data, std=0.5)
    model.to(torch.bfloat16).save_pretrained(tmp_path / "source")
    nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "quantized", scheme="w4a16",
                              ignore=["*.kv_*", "*.q_a_*", "*.q_b_*"])  # llama.cpp applies no scale to these
    nvfp4.convert(tmp_path / "quantized", tmp_path / "model.gguf", to="gguf")
    without_our_keys(tmp_path / "model.gguf", tmp_path / "foreign.gguf")
    tokens = torch.arange(3, 203)[None]
    results = []
    for source in ("quantized", "foreign.gguf"):
        nvfp4.convert(tmp_path / source, tmp_path / "plain" / source, to="bf16")
        loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "plain" / source, dtype=torch.bfloat16, output_loading_info=True)
        assert not any(info.values()), info
        with torch.no_grad():
            results.append(loaded.float()(tokens).logits)
    assert distance(*results) <= 1e-5 * float(results[0].std())
