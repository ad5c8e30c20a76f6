"""Tiny models of transformers 5 with random weights, one of each family."""

import torch
import transformers as t

TOKENS = torch.arange(3, 27).reshape(2, 12)
SIZES = dict(hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=512, tie_word_embeddings=False)
SMALL = dict(SIZES, hidden_size=64, intermediate_size=128, vocab_size=256)
EXPERTS = dict(SMALL, num_experts=4, num_experts_per_tok=2)

FAMILIES = {
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SIZES)),
    "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**SIZES)),
    "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**SIZES)),  # biases of q, k, v
    "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**SIZES, head_dim=32)),
    "gemma3": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(
        **dict(SIZES, tie_word_embeddings=True), head_dim=32)),
    "phi3": lambda: t.Phi3ForCausalLM(t.Phi3Config(**SIZES, pad_token_id=0)),  # fused as stored
    "granite": lambda: t.GraniteForCausalLM(t.GraniteConfig(**SIZES)),
    "mixtral": lambda: t.MixtralForCausalLM(t.MixtralConfig(**SMALL, num_local_experts=4)),
    "qwen3_moe": lambda: t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(
        **EXPERTS, moe_intermediate_size=96, head_dim=16, decoder_sparse_step=1, mlp_only_layers=[])),
    "olmoe": lambda: t.OlmoeForCausalLM(t.OlmoeConfig(**EXPERTS)),
}
