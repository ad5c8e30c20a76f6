"""Programs above transformers, which load a folder by its path: transformers.pipeline and sentence-transformers."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

import nvfp4
import nvfp4.transformers as backend

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"the a cat dog sat ran on under mat tree and then".split()]
SIZES = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=len(WORDS))
TEXTS = ["the cat sat on the mat", "a dog ran under a tree and then sat"]


def tokenizer():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]",
                                                cls_token="[CLS]", sep_token="[SEP]", eos_token="[SEP]")


@pytest.fixture
def folders(tmp_path):
    """folders(save): the folders of a model that save(folder) wrote, quantized and with its weights dequantized."""

    def get(save):
        torch.manual_seed(1)
        save(tmp_path / "source")
        nvfp4.quantize_checkpoint(tmp_path / "source", tmp_path / "quantized", scheme="w4a16")
        nvfp4.convert(tmp_path / "quantized", tmp_path / "plain", to="bf16")
        return tmp_path / "quantized", tmp_path / "plain"

    return get


def count(model):
    return sum(isinstance(module, backend.Nvfp4Linear) for module in model.modules())


def test_pipeline_generates_text(folders):
    def save(folder):
        config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, pad_token_id=0, eos_token_id=3)
        transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
        tokenizer().save_pretrained(folder)

    quantized, _ = folders(save)
    generate = transformers.pipeline("text-generation", model=str(quantized), dtype=torch.bfloat16)
    assert count(generate.model) == 14
    options = dict(max_new_tokens=4, min_new_tokens=4, do_sample=False)
    (made,) = generate(TEXTS[0], return_full_text=False, **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(quantized, dtype=torch.bfloat16)
    tokens = generate.tokenizer(TEXTS[0], return_tensors="pt")
    expected = model.generate(tokens.input_ids, attention_mask=tokens.attention_mask, **options)[0, -4:]
    assert made["generated_text"].split() == [WORDS[token] for token in expected]


def encoder(name, **sizes):
    config = dict(SIZES, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu")
    return getattr(transformers, f"{name}Model")(getattr(transformers, f"{name.removesuffix('Encoder')}Config")(**config))


@pytest.mark.parametrize("name, layers", (("T5Encoder", 14), ("UMT5Encoder", 14), ("CLIPText", 12)))
def test_text_encoders_of_diffusion_models(folders, name, layers):
    quantized, plain = folders(lambda folder: encoder(name).bfloat16().save_pretrained(folder))
    tokens = torch.arange(3, 15)[None]
    load = lambda folder: getattr(transformers, f"{name}Model").from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        states, expected = (load(folder)(tokens).last_hidden_state for folder in (quantized, plain))
    assert count(load(quantized)) == layers
    # The folder of plain weights has them rounded to BF16.
    assert float((states - expected).abs().max()) <= 2**-6 * float(expected.abs().max())


def test_sentence_transformer_embeds_texts(folders):
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")

    def save(folder):
        config = transformers.BertConfig(**SIZES, max_position_embeddings=32)
        transformers.BertModel(config).bfloat16().save_pretrained(folder / "bert")
        tokenizer().save_pretrained(folder / "bert")
        sentence_transformers.SentenceTransformer(str(folder / "bert")).save(str(folder))

    quantized, plain = folders(save)
    load = lambda folder: sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert count(load(quantized)) == 12
    embeddings, expected = load(quantized).encode(TEXTS), load(plain).encode(TEXTS)
    # The folder of plain weights has them rounded to BF16.
    assert abs(embeddings - expected).max() <= 2**-7 * abs(expected).max()
