"""Tokenizers in GGUF: keys and arrays as llama.cpp's conversion/ and the package gguf write them."""

import json
import struct

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
gguf = pytest.importorskip("gguf", reason="the Python package gguf is missing")

import nvfp4
from test_gguf_families import EXPERTS, FAMILIES, HEADS, SIZES

CASES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CASES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (CASES + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CASES}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CASES}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = GPT4O.replace(CASES + "?", "").replace("{1,3}", "")
# from the file of DeepSeek-V3: carriage returns and line feeds are characters
DEEPSEEK = (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}"
            "\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
ADDED = [("<s>", True), ("</s>", True), ("<pad>", False), ("<|user|>", False), ("<｜x｜>", False), ("<tool>", False),
         ("▁▁", False), ("[gMASK]", True), ("<|endoftext|>", True), ("<|observation|>", True), ("<|channel>", True),
         ("<unused7>", False)]
WORDS = ["th", "the", "in", "ing", "▁t", "▁the", "Ġt", "Ġthe"]
MERGES = [("t", "h"), ("th", "e"), ("i", "n"), ("in", "g")]
START, FIRST, SECOND = ({kind: {"id": text, "type_id": 0}} for kind, text in (
    ("SpecialToken", "<s>"), ("Sequence", "A"), ("Sequence", "B")))
TEMPLATE = {"type": "TemplateProcessing", "single": [START, FIRST], "pair": [START, FIRST, START, SECOND],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [264], "tokens": ["<s>"]}}}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SIDE = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "pad_token": "<|endoftext|>", "add_bos_token": True, "chat_template": "{{ messages }}"}


def added(first, known=()):
    """Tokens that a tokenizer adds, from number `first` on. Those of `known` have the numbers that they have there."""
    ids = {text: first + i for i, (text, _) in enumerate(ADDED)} | {text: i for i, text in enumerate(known)}
    return [{"id": ids[text], "content": text, "special": special, "normalized": not special, "single_word": False,
             "lstrip": False, "rstrip": False} for text, special in ADDED]


def byte_level(*expressions, ignore_merges=False, post=TEMPLATE, **side):
    """tokenizer.json of bytes: expressions, "digits" or none before them."""
    vocabulary = list(gguf.vocab.bytes_to_unicode().values()) + WORDS
    steps = [{"type": "Digits", "individual_digits": True} if e == "digits" else
             {"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": False} for e in expressions]
    last = BYTE_LEVEL | {"use_regex": not expressions or expressions == ("digits",)}
    return {"tokenizer.json": {
        "version": "1.0", "added_tokens": added(len(vocabulary)), "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps + [last]} if steps else last,
        "post_processor": post, "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "byte_fallback": False, "ignore_merges": ignore_merges,
                  "vocab": {token: i for i, token in enumerate(vocabulary)}, "merges": [list(m) for m in MERGES]}},
        "tokenizer_config.json": SIDE | side}


PIECES = ([("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)] + [(f"<0x{i:02X}>", 0.0, 6) for i in range(256)] +
          [(a + b, -i / 2, 1) for i, (a, b) in enumerate(MERGES)] + [("t", -9.5, 4), ("h", -10.5, 5), ("e", -11.0, 1)])
TEXTS = [text for text, _, _ in PIECES] + ["i", "n", "g"]


def varint(value):
    return bytes([value & 127 | 128 * (value > 127)]) + (varint(value >> 7) if value > 127 else b"")


def message(*fields):
    """A message of protocol buffers: numbers and values of fields, in their order."""
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def sentencepiece(model_type=2, byte_fallback=35):
    fields = [(1, message((1, text.encode()), (2, score), (3, kind))) for text, score, kind in PIECES]
    return message(*fields, (2, message((3, model_type), (4, len(PIECES)), (byte_fallback, 1))))


def pieces(**side):
    """tokenizer.model, and tokens that tokenizer_config.json adds to it."""
    return {"tokenizer.model": sentencepiece(), "added_tokens.json": {"<more>": 300, "<out>": 320},
            "tokenizer_config.json": SIDE | {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {
                str(token["id"]): token for token in added(280, TEXTS)}} | side}


def fallback(vocabulary):
    """tokenizer.json of texts that falls back to bytes."""
    return {"tokenizer.json": {
        "version": "1.0", "added_tokens": added(len(vocabulary) - 2, vocabulary), "post_processor": TEMPLATE,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "vocab": {
            token: i for i, token in enumerate(vocabulary)}, "merges": [" ".join(m) for m in MERGES]}},
        "tokenizer_config.json": SIDE | {"additional_special_tokens": [text for text, special in ADDED if special]}}


MORE = {
    "llama": ("Llama", HEADS), "mistral": ("Mistral", HEADS), "granite": ("Granite", SIZES), "qwen2": ("Qwen2", SIZES),
    "qwen3_moe": ("Qwen3Moe", HEADS | EXPERTS | dict(norm_topk_prob=True)),
    "deepseek_v3": ("DeepseekV3", SIZES | dict(
        num_key_value_heads=4, n_routed_experts=4, moe_intermediate_size=64, num_experts_per_tok=2, n_group=1,
        topk_group=1, kv_lora_rank=64, q_lora_rank=64, qk_rope_head_dim=32, qk_nope_head_dim=32, v_head_dim=32)),
}
PHI = pieces() | {"tokenizer.json": {
    "added_tokens": added(280, TEXTS)[:4], "model": {"type": "BPE", "byte_fallback": True}}}
BYTES_LAST = {"type": "Sequence", "processors": [BYTE_LEVEL, TEMPLATE]}
TEMPLATES = [{"name": "default", "template": "{{ a }}"}, {"name": "tool-use", "template": "{{ b }}"}]
ENDS = TEMPLATE | {"single": TEMPLATE["single"] + [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}]}

#: family, files, tokenizer.ggml.model, tokenizer.ggml.pre
ROWS = [
    ("llama", byte_level(LLAMA3, ignore_merges=True, post=BYTES_LAST), "gpt2", "llama-bpe"),
    ("llama", byte_level("digits", chat_template=TEMPLATES), "gpt2", "smollm"),
    ("llama", byte_level(), "gpt2", "gpt-2"),
    ("llama", pieces(add_prefix_space=False), "llama", "default"),
    ("llama", fallback(TEXTS), "llama", "default"),
    ("mistral", pieces(), "llama", "default"),
    ("mistral", byte_level(TEKKEN, ignore_merges=True), "gpt2", "tekken"),
    ("granite", byte_level("digits", post=BYTE_LEVEL), "gpt2", "refact"),
    ("granite", byte_level(LLAMA3), "gpt2", "dbrx"),
    ("qwen2", byte_level(QWEN2, post=BYTE_LEVEL), "gpt2", "qwen2"),
    ("qwen2", byte_level(QWEN2, post=ENDS), "gpt2", "qwen2"),
    ("qwen3_moe", byte_level(QWEN2, post=BYTE_LEVEL), "gpt2", "qwen2"),
    ("qwen3_next", byte_level(QWEN2, post=BYTE_LEVEL), "gpt2", "qwen2"),
    ("qwen3_5", byte_level(QWEN35, post=BYTE_LEVEL), "gpt2", "qwen35"),
    ("qwen3_5_moe", byte_level(QWEN35, post=BYTE_LEVEL), "gpt2", "qwen35"),
    ("gemma3_text", pieces(), "llama", "default"),
    ("gemma4_text", fallback(TEXTS + [text for text, _ in ADDED[2:]]), "gemma4", None),
    ("glm4_moe", byte_level(LLAMA3, ignore_merges=True, post=BYTE_LEVEL, bos_token=None), "gpt2", "glm4"),
    ("glm_moe_dsa", byte_level(LLAMA3, ignore_merges=True, post=BYTE_LEVEL, bos_token=None), "gpt2", "glm4"),
    ("minimax_m2", byte_level(GPT4O), "gpt2", "minimax-m2"),
    ("hunyuan_v1_dense", byte_level(*DEEPSEEK), "gpt2", "hunyuan-dense"),
    ("hunyuan_v1_moe", byte_level(QWEN2), "gpt2", "hunyuan"),
    ("gpt_oss", byte_level(GPT4O, ignore_merges=True, post=BYTE_LEVEL), "gpt2", "gpt-4o"),
    ("phi3", PHI, "llama", "default"),
    ("phi3", byte_level(GPT4O), "gpt2", "gpt-4o"),
    ("nemotron_h", byte_level(LLAMA3, ignore_merges=True), "gpt2", "pixtral"),
    ("nemotron_h_moe", byte_level(TEKKEN), "gpt2", "tekken"),
    ("deepseek_v3", byte_level(*DEEPSEEK, post=BYTE_LEVEL), "gpt2", "deepseek-v3"),
]


def write(folder, files):
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).write_text(json.dumps(content))


def tokens_by_formula(files, model):
    """Texts, types and scores, by get_vocab_base(), _create_vocab_sentencepiece() and set_vocab() of conversion/."""
    tokens, types, scores = [f"[PAD{i}]" for i in range(320)], [5] * 320, [-10000.0] * 320

    def put(i, text, kind, score=-1000.0):
        tokens[i], types[i], scores[i] = text, kind, score

    looks = {"<pad>", "<|user|>", "<｜x｜>", "<|endoftext|>", "<|observation|>", "<unused7>"}
    if "tokenizer.model" in files:
        for i, (text, score, kind) in enumerate(PIECES):
            put(i, text, 1 if kind == 4 else kind, score)
        put(300, "<more>", 4)
        is_phi = "tokenizer.json" in files
        for token in added(280, TEXTS):
            text, special = token["content"], token["special"]
            control = special or (text in looks and not is_phi)
            put(token["id"], text if control or is_phi else text.replace("▁", " "), 3 if control else 4)
        return tokens, types, scores
    tree = files["tokenizer.json"]
    ranks = {a + b: -float(i) for i, (a, b) in reversed(list(enumerate(MERGES)))}
    for text, i in tree["model"]["vocab"].items():
        is_byte = model != "gpt2" and text.startswith("<0x")
        put(i, text, 6 if is_byte else 1, ranks.get(text, -1000.0) if model == "llama" else -1000.0)
    for token in tree["added_tokens"]:
        text, special = token["content"], token["special"]
        shown = model == "gemma4" and text == "<|channel>"
        if model != "gpt2":
            inside = text in tree["model"]["vocab"] and not shown
            put(token["id"], text, 3 if special and not shown else 1 if inside else 4)
        else:
            control = special or text in looks
            put(token["id"], text if control else text.replace("▁", " "), 3 if control else 4)
    return tokens, types, scores if model != "gpt2" else None


def special_keys(folder, family, post):
    """Keys that SpecialVocab of the package gguf adds, and those of set_vocab() of conversion/."""
    writer = gguf.GGUFWriter(None, "llama")
    gguf.SpecialVocab(folder, n_vocab=320).add_to_gguf(writer, quiet=True)
    found = {key: value.value for key, value in writer.kv_data[0].items() if key.startswith("tokenizer.")}
    steps = post.get("processors", [post])
    if BYTE_LEVEL in steps and ENDS not in steps:  # which SpecialVocab has read since version 0.20
        found |= {"tokenizer.ggml.add_eos_token": False, "tokenizer.ggml.add_bos_token": TEMPLATE in steps}
    ids = {token["content"]: token["id"] for token in added(264)}
    if family.startswith("glm"):
        others = {"bos": "[gMASK]", "eot": "<|user|>", "unknown": "<|endoftext|>", "eom": "<|observation|>"}
        for kind, text in others.items():
            found.setdefault(f"tokenizer.ggml.{kind}_token_id", ids[text])
    if family == "hunyuan_v1_dense":
        found["tokenizer.ggml.eos_token_id"] = 3  # eod_token_id of config.json
    if family.startswith(("gemma3", "gemma4")):
        found["tokenizer.ggml.add_space_prefix"] = False
    if family.startswith("gemma4"):
        found["tokenizer.ggml.add_bos_token"] = True
    return found


@pytest.mark.parametrize(("family", "files", "model", "pre"), [
    pytest.param(*row, id=f"{row[0]}-{row[3] or row[2]}-{i}") for i, row in enumerate(ROWS)])
def test_tokenizer_is_that_of_the_converter(tmp_path, family, files, model, pre):
    kind, arguments = MORE[family] if family in MORE else FAMILIES[family][:2]
    config = next(getattr(transformers, kind + end) for end in ("TextConfig", "Config")
                  if hasattr(transformers, kind + end))
    model_of_family = getattr(transformers, kind + "ForCausalLM")(config(**arguments))
    model_of_family.to(torch.bfloat16).save_pretrained(tmp_path / "model")
    write(tmp_path / "model", files)
    report = nvfp4.quantize_checkpoint(tmp_path / "model", tmp_path / "model.gguf")
    assert not [w for w in report["warnings"] if "tokenizer" in w]
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    found = {key: field.contents() for key, field in reader.fields.items() if key.startswith("tokenizer.")}
    tokens, types, scores = tokens_by_formula(files, model)
    expected = special_keys(
        tmp_path / "model", family, files.get("tokenizer.json", {}).get("post_processor", {})) | {
        "tokenizer.ggml.model": model, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    if pre:
        expected["tokenizer.ggml.pre"] = pre
    if scores:
        expected["tokenizer.ggml.scores"] = scores
    if model in ("gpt2", "gemma4"):
        expected["tokenizer.ggml.merges"] = [f"{a} {b}" for a, b in MERGES]
    side = files["tokenizer_config.json"]
    if family in ("llama", "mistral", "granite") and "add_prefix_space" in side:
        expected["tokenizer.ggml.add_space_prefix"] = side["add_prefix_space"]
    assert found == expected
