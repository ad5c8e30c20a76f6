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
    nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "quantized", scheme="nvfp4a16")
    nvfp4.convert(tmp_path / "quantized", tmp_path / "model.gguf", "gguf")
    file = tmp_path / "model.gguf"
    if foreign:
        file = tmp_path / "foreign.gguf"
        without_our_keys(tmp_path / "model.gguf", file)
    nvfp4.convert(file, tmp_path / "again", format)
    loaded = load(tmp_path / "again")
    assert len(ours(loaded)) == len(ours(load(tmp_path / "quantized"))) >= 8
    # compressed-tensors stores 1 / the global scale, which may lead back to a neighbour.
    difference = distance(logits(loaded), logits(load(tmp_path / "quantized")))
    assert difference <= 1e-6 * float(logits(loaded).std())
