"""Small models and a text for the tests of nvfp4.calibrate."""

import torch
import transformers

SIZES = dict(windows=9, context=32, batch=4)  # the last batch is smaller
WORDS = "a quick brown fox jumps over the lazy dog and runs away from it all".split()


def tokenizer_of_words():
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {"<end>": 0, "<?>": 1} | {word: i + 2 for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<?>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<?>")


def write_model(folder, experts):
    common = dict(vocab_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  head_dim=16, max_position_embeddings=64)
    torch.manual_seed(3)
    if experts:
        config = transformers.Qwen3MoeConfig(**common, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                             intermediate_size=128, decoder_sparse_step=1)
        model = transformers.Qwen3MoeForCausalLM(config)
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**common, intermediate_size=128))
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer_of_words().save_pretrained(folder)
    return folder


def write_text_of_words(file, documents=10):
    generator, count = torch.Generator().manual_seed(5), 90 * documents
    words = [WORDS[i] for i in torch.randint(len(WORDS), (count,), generator=generator)]
    file.write_text("\n\x1e\n".join(" ".join(words[i : i + 90]) for i in range(0, count, 90)), encoding="utf-8")
    return file


def bytes_by_name(folder):
    from safetensors.torch import load_file

    tensors = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    return {name: t.reshape(-1).view(torch.uint8).tolist() for name, t in tensors.items()}
