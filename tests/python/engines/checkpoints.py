"""Small NVFP4 checkpoints for the tests of engines, and what their weights are."""

import json

import nvfp4
import pytest
import torch
import transformers as t
from safetensors.torch import load_file

INPUT_AMAX = 10.5
# Heads of 32 and sizes that four ranks can share: inputs of a rank are whole blocks of 16.
SIZES = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=32, vocab_size=512, tie_word_embeddings=False)
MODELS = {
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SIZES, intermediate_size=320)),
    "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(  # biases of q, k, v
        **{k: v for k, v in SIZES.items() if k != "head_dim"}, intermediate_size=320)),
    "qwen3_moe": lambda: t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(
        **SIZES, intermediate_size=256, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=192,
        decoder_sparse_step=1, mlp_only_layers=[])),
}


#: Types of language models whose verdict for vLLM is "reads" (data/engines.txt).
TYPES = ("apertus", "cohere", "cohere2", "cohere2_moe", "deepseek_v2", "ernie4_5", "ernie4_5_moe", "exaone4",
         "gemma", "gemma3_text", "glm4", "glm4_moe", "granite", "granite_swa", "granitemoe", "granitemoe_swa",
         "granitemoehybrid", "granitemoeshared", "hyperclovax", "llama", "ministral3", "mistral", "mixtral",
         "nemotron", "olmoe", "opt", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe")

#: The same for SGLang.
SGLANG_TYPES = ("arcee", "glm4", "granite", "granitemoe", "llama", "ministral3", "mistral", "olmo2", "opt", "phi3",
                "qwen2", "qwen3", "starcoder2")


def make_type(at, model_type):
    """Returns the folder of a tiny model with random weights, quantized."""
    torch.manual_seed(1)
    config = t.AutoConfig.for_model(model_type, **SIZES, intermediate_size=256, num_experts=4, num_local_experts=4,
                                    num_experts_per_tok=2, moe_intermediate_size=128, pad_token_id=0)
    t.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(at / "source")
    nvfp4.quantize_checkpoint(at / "source", at / "out", scheme="w4a16")
    return at / "out"


def make(at, model, scheme, format, amax=INPUT_AMAX, **options):
    """A folder below `at`."""
    torch.manual_seed(1)
    source = at / model
    if not source.exists():
        MODELS[model]().to(torch.bfloat16).save_pretrained(source)
    (at / "amax.json").write_text(json.dumps({"*": amax}))
    to = at / f"{model}-{scheme}-{format}"
    nvfp4.quantize_checkpoint(source, to, scheme=scheme, format=format, input_amax=at / "amax.json",
                              **options)
    return to


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    at, made = tmp_path_factory.mktemp("models"), {}

    def get(*what):
        if what not in made:
            made[what] = make(at, *what)
        return made[what]

    return get


FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


def make_partly(at, format):
    """Returns the quantization_config of a model some of whose layers are excluded."""
    MODELS["llama"]().to(torch.bfloat16).save_pretrained(at / "source")
    nvfp4.quantize_checkpoint(at / "source", at / "out", format=format, ignore=[
        *(f"model.layers.0.self_attn.{part}_proj" for part in "qkv"), "model.layers.1.mlp.*"])
    return json.loads((at / "out" / "config.json").read_text())["quantization_config"]


def check_exclusions(is_excluded):
    """Compares the answers of an engine about the layers of make_partly(), with the prefixes of models."""
    excluded = {"layers.0.self_attn.qkv_proj": True, "layers.0.self_attn.o_proj": False,
                "layers.0.mlp.gate_up_proj": False, "layers.0.mlp.down_proj": False,
                "layers.1.self_attn.qkv_proj": False, "layers.1.mlp.gate_up_proj": True,
                "layers.1.mlp.down_proj": True}
    for prefix in ("model.", "language_model.model.", "model.language_model."):
        for name, expected in excluded.items():
            assert is_excluded(prefix + name) == expected, prefix + name
    assert is_excluded("lm_head")


def tensors(folder):
    return {name: tensor for file in sorted(folder.glob("*.safetensors"))
            for name, tensor in load_file(file).items()}


def decoded(stored, module):
    """The weight [N, K] of a module, FP32."""
    packed = f"{module}.weight_packed" in stored
    codes = stored[f"{module}.weight_packed" if packed else f"{module}.weight"]
    scale = (1 / stored[f"{module}.weight_global_scale"] if packed
             else stored[f"{module}.weight_scale_2"]).reshape(1)
    q = nvfp4.QuantizedTensor(codes, stored[f"{module}.weight_scale"].view(torch.uint8), scale,
                              (codes.shape[0], 2 * codes.shape[1]))
    return nvfp4.dequantize(q, torch.float32)


def input_of(stored, modules, x):
    """x as layers of W4A4 that are one product see it: quantized with their largest input scale."""
    scales = []
    for module in modules:
        if f"{module}.input_scale" in stored:
            scales.append(stored[f"{module}.input_scale"].reshape(1))
        elif f"{module}.input_global_scale" in stored:
            scales.append(1 / stored[f"{module}.input_global_scale"].reshape(1))
    if not scales:
        return x
    return nvfp4.dequantize(nvfp4.quantize(x, "max", global_scale=torch.stack(scales).amax(0)),
                            torch.float32)


# --- layers on one of four ranks: vLLM's and SGLang's have the same names and loaders ------------------

FORMS = [("w4a16", "modelopt"), ("w4a4", "modelopt"), ("w4a16", "compressed-tensors"),
         ("w4a4", "compressed-tensors")]
EXPERTS = "model.layers.1.mlp.experts"
_draw = torch.Generator().manual_seed(3)
#: x, experts and their weights
TOKENS = (torch.randn(5, 128, generator=_draw), torch.tensor([[0, 3], [2, 1], [3, 2], [1, 1], [0, 2]]),
          torch.rand(5, 2, generator=_draw))


def distance(a, b):
    return float((a.double() - b.double()).square().mean().sqrt())


def loaded(layer, stored, parts):
    """Through the layer's own loaders, as a model of the engine does it: {module: shard id or None}."""
    for module, shard in parts.items():
        for name, parameter in list(layer.named_parameters()):
            if f"{module}.{name}" in stored:
                more = () if shard is None else (shard,)
                parameter.weight_loader(parameter, stored[f"{module}.{name}"], *more)
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def cut(weight, rank, of, dim):
    return weight.chunk(of, dim)[rank]


def close(y, expected, scheme):
    # W4A4: a sum in another order, of inputs with the same codes.
    assert distance(y, expected) <= 2e-6 * float(expected.std()), scheme


def check_linear_layers(classes, folder, config, rank, scheme, **ranks):
    """Compares layers of the engine's own classes, loaded on one of four ranks, with dequantized weights."""
    qkv, merged, row = classes
    stored = tensors(folder)
    for name in [n for n in stored if n.endswith(("k_proj.weight_scale_2", "up_proj.weight_scale_2",
                                                  "k_proj.weight_global_scale"))]:
        stored[name] = stored[name] * 2  # a global scale of its own in a fused layer
    for name in [n for n in stored if n.endswith(("q_proj.input_scale", "q_proj.input_global_scale"))]:
        stored[name] = stored[name] / 3
    base, make = "model.layers.0", dict(quant_config=config, params_dtype=torch.float32, **ranks)
    torch.manual_seed(2)
    x = torch.randn(5, 128)

    attention = f"{base}.self_attn"
    q, k, v = names = [f"{attention}.{part}_proj" for part in "qkv"]
    layer = loaded(qkv(128, 32, 4, 2, bias=True, prefix=f"{attention}.qkv_proj", **make), stored,
                   {q: "q", k: "k", v: "v"})
    assert type(layer.quant_method).__name__ == "Nvfp4LinearMethod"
    # Two heads of keys on four ranks: each is on two of them.
    heads = [(q, rank), (k, rank // 2), (v, rank // 2)]
    weight = torch.cat([decoded(stored, name)[32 * head:32 * head + 32] for name, head in heads])
    bias = torch.cat([stored[f"{name}.bias"][32 * head:32 * head + 32] for name, head in heads]).float()
    close(layer(x)[0], input_of(stored, names, x) @ weight.T + bias, scheme)

    names = [f"{base}.mlp.gate_proj", f"{base}.mlp.up_proj"]
    layer = loaded(merged(128, [320, 320], bias=False, prefix=f"{base}.mlp.gate_up_proj", **make), stored,
                   dict(zip(names, (0, 1))))
    weight = torch.cat([cut(decoded(stored, name), rank, 4, 0) for name in names])
    close(layer(x)[0], input_of(stored, names, x) @ weight.T, scheme)

    name = f"{base}.mlp.down_proj"
    layer = loaded(row(320, 128, bias=False, reduce_results=False, prefix=name, **make), stored,
                   {name: None})
    x = torch.randn(5, 80)
    close(layer(x)[0], input_of(stored, [name], x) @ cut(decoded(stored, name), rank, 4, 1).T, scheme)


def experts_in(folder):
    """The tensors of a checkpoint; of one expert the input scale of gate is the largest of all."""
    stored = tensors(folder)
    for name in [n for n in stored if n.startswith(f"{EXPERTS}.2.gate_proj.input_")]:
        stored[name] = stored[name] * 3 if name.endswith("input_scale") else stored[name] / 3
    return stored


def of_experts(stored, base, x, ids, weights, rank, by_expert):
    """Returns the output of the experts of one of four ranks: a quarter of each expert, or the expert of the rank."""
    part = lambda expert, name: f"{base}.{expert}.{name}_proj"
    gates = [part(e, n) for e in range(4) for n in ("gate", "up")]
    mine = [rank] if by_expert else range(4)
    # The experts of a rank quantize x once, with the largest of their scales.
    seen = input_of(stored, [n for n in gates if int(n.split(".")[-2]) in mine], x)
    expected = torch.zeros(5, 128)
    for token in range(5):
        for choice in range(2):
            expert = int(ids[token, choice])
            if expert not in mine:
                continue
            slices = lambda w, dim: w if by_expert else cut(w, rank, 4, dim)
            gate, up = (seen[token:token + 1] @ slices(decoded(stored, part(expert, n)), 0).T
                        for n in ("gate", "up"))
            inner = torch.nn.functional.silu(gate) * up
            down = part(expert, "down")
            inner = input_of(stored, [down], inner)
            expected[token] += weights[token, choice] * (inner @ slices(decoded(stored, down), 1).T)[0]
    return expected
