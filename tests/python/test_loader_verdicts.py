"""What `nvfp4 verify --for transformers` says of a type of model is what transformers does."""

import pytest

import nvfp4

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("compressed_tensors")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip("the verdicts are those of transformers 5", allow_module_level=True)

SIZES = dict(vocab_size=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
DECODER = dict(SIZES, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, head_dim=16)
EXPERTS = dict(DECODER, num_experts=4, num_local_experts=4, num_experts_per_tok=2)
T5 = dict(SIZES, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
          decoder_start_token_id=0)

#: type -> (kind of model, configuration, what is said of it)
TYPES = {
    "llama": ("CausalLM", DECODER, "reads"),
    "qwen3": ("CausalLM", DECODER, "reads"),
    "llama4_text": ("CausalLM", dict(EXPERTS, intermediate_size_mlp=128,
                                     interleave_moe_layer_step=1), "reads"),
    "mixtral": ("CausalLM", EXPERTS, "misreads"),
    "gpt_oss": ("CausalLM", EXPERTS, "misreads"),
    "t5": ("Seq2SeqLM", T5, "refuses"),
    "mt5": ("Seq2SeqLM", T5, "refuses"),
    "falcon": ("CausalLM", {k: v for k, v in DECODER.items() if k != "head_dim"}, "refuses"),
    "mamba2": ("CausalLM", dict(SIZES, hidden_size=64, num_hidden_layers=2, head_dim=16,
                                num_heads=8, state_size=16, n_groups=1), "refuses"),
    "modernbert": ("MaskedLM", {k: v for k, v in DECODER.items() if k != "head_dim"}, "refuses"),
}


def make(model_type, kind, sizes, folder):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type)
    for key, value in sizes.items():
        setattr(config, key, value)
    if "layer_types" in config.to_dict() and config.layer_types is not None:
        try:
            config.layer_types = config.layer_types[:2]
        except AttributeError:  # Mamba 2's follow from the count
            pass
    auto = getattr(transformers, f"AutoModelFor{kind}")
    model = auto.from_config(config, dtype=torch.bfloat16).eval()
    for name, p in model.named_parameters():
        if p.dim() >= 2 and "norm" not in name:
            torch.nn.init.normal_(p, std=0.05)
    model.save_pretrained(folder)
    return auto, model


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
    except AttributeError as error:
        assert "weight" in str(error)
        return "refuses"
    if info["missing_keys"]:
        return "misreads"
    expected = logits(source)
    away = (logits(model.eval()) - expected).norm() / expected.norm()
    return "reads" if away < 0.7 else "misreads"


@pytest.mark.parametrize("model_type", TYPES)
def test_the_verdict_is_what_loading_does(model_type, tmp_path):
    kind, sizes, expected = TYPES[model_type]
    auto, source = make(model_type, kind, sizes, tmp_path / "source")
    nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "out", scheme="nvfp4a16",
                              format="compressed-tensors")
    report = nvfp4.verify(tmp_path / "out", loader="transformers")
    said = report["loaders"]["transformers"]["verdict"]
    assert said == expected, report
    assert report["broken"] == (said != "reads")
    assert verdict_of_loading(auto, tmp_path / "out", source) == expected
