"""Small NVFP4 checkpoints for the tests of engines, and what their weights are."""

import json

import nvfp4
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


def make(at, model, scheme, format, amax=INPUT_AMAX):
    """A folder below `at`."""
    torch.manual_seed(1)
    source = at / model
    if not source.exists():
        MODELS[model]().to(torch.bfloat16).save_pretrained(source)
    (at / "amax.json").write_text(json.dumps({"*": amax}))
    to = at / f"{model}-{scheme}-{format}"
    nvfp4.quantize_checkpoint(source, to, scheme=scheme, format=format, input_amax=at / "amax.json")
    return to


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
