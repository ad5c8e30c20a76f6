#!/usr/bin/env python3
"""Time of a step of distillation on a GPU: a model of nvfp4.torch.prepare against the same step without rounding.

usage: PYTHONPATH=<build>/python bench/train_step.py [--tokens 8192] [--layers 4] [--vocabulary 32768]

A Llama with the layer sizes of 8 B and random weights in FP32, autocast to BF16, with a teacher in BF16, the KL loss of
examples/distill.py, gradients and AdamW. Best of 5 steps. Needs transformers 5 and this package built with CUDA.
"""

import argparse
import copy
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import nvfp4
from nvfp4.torch import prepare

#: name -> scheme of the checkpoint and how its inputs are quantized; None: no checkpoint.
KINDS = {"BF16": None, "W4A16": ("w4a16", None), "W4A4, max": ("w4a4", "max"), "W4A4, mse": ("w4a4", "mse")}


def model_of(options):
    torch.manual_seed(1)
    size = dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8)
    return LlamaForCausalLM(LlamaConfig(**size, num_hidden_layers=options.layers, vocab_size=options.vocabulary))


def step(student, teacher, optimizer, tokens):
    with torch.autocast("cuda", torch.bfloat16):
        with torch.no_grad():
            p = torch.log_softmax(teacher(tokens, use_cache=False).logits.float(), -1)
        q = torch.log_softmax(student(tokens, use_cache=False).logits.float(), -1)
        loss = torch.nn.functional.kl_div(q.flatten(0, 1), p.flatten(0, 1), log_target=True, reduction="batchmean")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def milliseconds(run):
    """Returns the shortest time of 5 runs, after 2 others."""
    best = float("inf")
    for number in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end)) if number > 1 else best
    return best


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--tokens", type=int, default=8192, help="tokens of a step, windows of 512 (8192)")
    a.add_argument("--layers", type=int, default=4)
    a.add_argument("--vocabulary", type=int, default=32768)
    options = a.parse_args()
    plain = model_of(options)
    tokens = torch.randint(options.vocabulary, (options.tokens // 512, 512), device="cuda")
    teacher = copy.deepcopy(plain).cuda().bfloat16().eval().requires_grad_(False)
    times = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        plain.save_pretrained(folder / "plain")
        for scheme in ("w4a16", "w4a4"):
            nvfp4.quantize_checkpoint(folder / "plain", folder / scheme, method="max", scheme=scheme)
        print("| student | ms a step | of BF16 | GiB |\n|---|---|---|---|")
        for name, way in KINDS.items():
            student = copy.deepcopy(plain).cuda()
            if way is not None:
                prepare(student, folder / way[0], activations=way[1])
            optimizer = torch.optim.AdamW(student.parameters(), lr=1e-6, fused=True)
            times[name] = milliseconds(lambda: step(student, teacher, optimizer, tokens))
            held = torch.cuda.max_memory_allocated() / 2**30
            torch.cuda.reset_peak_memory_stats()
            print(f"| {name} | {times[name]:.1f} | {times[name] / times['BF16']:.2f} | {held:.1f} |", flush=True)
            del student, optimizer


if __name__ == "__main__":
    main()
