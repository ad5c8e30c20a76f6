#!/usr/bin/env python3
"""Trains a small language model to measure quantizers with, from text of one's own.

  train.py dense|experts|small OUT --text FILE --validation FILE [--steps N]

The texts are UTF-8, documents separated by a line that holds only U+001E. OUT is a folder that measure.py takes: a
Llama of 42 M parameters, a Qwen3 mixture of 8 experts of 43 M, or a Llama of 7 M with tied embeddings for a vocabulary
of 2048, in BF16, and the tokenizer (byte-level BPE), made of the same text. FP32 weights, arithmetic in BF16, AdamW, the
rate falls as a cosine, windows of 512 tokens. The models of docs/accuracy.md were trained so, on the documentation
packages of Debian 12, 42 M tokens: 3751 and 1714 steps. examples/austen/README.md says how the small one was.
"""

import argparse
import itertools
import math
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen3MoeConfig

CONTEXT, END = 512, "<|endoftext|>"
#: Number of tokenizations of a text whose tokenizer leaves out merges at random.
VARIANTS = 16
COMMON = dict(head_dim=64, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=False,
              bos_token_id=0, eos_token_id=0)
CONFIGS = {
    "dense": lambda size: LlamaConfig(
        vocab_size=size, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
        intermediate_size=1536, **COMMON),
    # The loss has the balance of the experts with this factor.
    "experts": lambda size: Qwen3MoeConfig(
        vocab_size=size, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=2,
        intermediate_size=512, moe_intermediate_size=512, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True,
        router_aux_loss_coef=0.01, output_router_logits=True, **COMMON),
    "small": lambda size: LlamaConfig(
        vocab_size=size, hidden_size=256, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=768, **COMMON | dict(tie_word_embeddings=True)),
}


def documents(path):
    return Path(path).read_text(encoding="utf-8").split("\n\x1e\n")


def make_tokenizer(texts, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, unk_token=END,
                                   model_max_length=CONTEXT)


def encode(texts, tokenizer, dropout=0.0):
    """Returns the tokens of all documents in a row, token 0 after each. `dropout` is the probability that a merge is left
    out; if it is not 0, the row has VARIANTS tokenizations of each document, against overfitting to a small text."""
    bpe = tokenizer.backend_tokenizer.model
    bpe.dropout = dropout or None
    found = tokenizer.backend_tokenizer.encode_batch_fast(texts * (VARIANTS if dropout else 1))
    bpe.dropout = None
    return torch.from_numpy(np.concatenate([np.array([*e.ids, 0], np.int32) for e in found]))


def batches(tokens, count):
    """Windows without replacement; each epoch cuts the text elsewhere."""
    while True:
        starts = torch.arange(int(torch.randint(CONTEXT, ())), len(tokens) - CONTEXT, CONTEXT)
        for some in starts[torch.randperm(len(starts))].split(count):
            if len(some) == count:
                yield tokens[some[:, None] + torch.arange(CONTEXT)].long()


def shrink_outputs(model):
    """Scales the initial outputs that are added to the residual stream by the number of additions."""
    for name, weight in model.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            weight.data /= math.sqrt(2 * model.config.num_hidden_layers)


def rate_of(step, steps, peak):
    warm = min(200, max(1, steps // 10))
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * (step - warm) / max(1, steps - warm))))


@torch.no_grad()
def perplexity(model, tokens, device):
    windows = tokens[:len(tokens) // CONTEXT * CONTEXT].view(-1, CONTEXT)[:256].long()
    if len(windows) == 0:
        return float("nan")
    losses = []
    for some in windows.split(16):
        logits = model(some.to(device), use_cache=False).logits[:, :-1].float()
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), some[:, 1:].flatten().to(device),
                                                        reduction="none").cpu())
    return math.exp(torch.cat(losses).mean())


def train(model, tokens, options):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)],
                                  betas=(0.9, 0.95))
    for step, windows in enumerate(itertools.islice(batches(tokens, options.batch), options.steps)):
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step, options.steps, options.rate)
        windows = windows.to(options.device)
        with torch.autocast(torch.device(options.device).type, torch.bfloat16):
            loss = model(windows, labels=windows, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 100 == 0 or step + 1 == options.steps:
            print(f"step {step + 1} of {options.steps}: loss {loss.item():.3f}", file=sys.stderr, flush=True)


def main(given=None):
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model", choices=CONFIGS)
    a.add_argument("out", metavar="OUT", help="the folder to write")
    a.add_argument("--text", required=True, metavar="FILE", help="to train on")
    a.add_argument("--validation", required=True, metavar="FILE", help="to measure perplexity on")
    a.add_argument("--steps", type=int, default=3751, metavar="N", help="(3751)")
    a.add_argument("--batch", type=int, default=128, metavar="N", help="windows a step (128)")
    a.add_argument("--rate", type=float, default=2e-3, help="the highest (0.002)")
    a.add_argument("--vocabulary", type=int, default=16384, metavar="N", help="tokens, at most (16384)")
    a.add_argument("--dropout", type=float, default=0.0, metavar="P", help="of merges in the tokenizer (0)")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = a.parse_args(given)
    torch.manual_seed(1)
    texts = documents(options.text)
    tokenizer = make_tokenizer(texts, options.vocabulary)
    tokens = encode(texts, tokenizer, options.dropout)
    if len(tokens) < (options.batch + 1) * CONTEXT:
        a.error(f"--text {options.text}: {len(tokens)} tokens, a batch needs {(options.batch + 1) * CONTEXT}")
    model = AutoModelForCausalLM.from_config(CONFIGS[options.model](options.vocabulary), dtype=torch.float32)
    shrink_outputs(model)
    model.to(options.device)
    train(model, tokens, options)
    model.to(torch.bfloat16).eval()
    if options.model == "experts":
        model.config.output_router_logits = False
    held = encode(documents(options.validation), tokenizer)
    print(f"validation perplexity, BF16: {perplexity(model, held, options.device):.2f}")
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
