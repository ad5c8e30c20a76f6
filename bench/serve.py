#!/usr/bin/env python3
"""Tokens per second of models in transformers: BF16 against NVFP4 on our kernels.

Synthetic models with random weights, made on the GPU: an 8 B Llama, and a mixture of experts like
Qwen3-30B-A3B with half its layers. Decoding has a static cache, torch.compile (fullgraph) and a CUDA
graph on both sides; prefill is eager.

  serve.py                                   everything, about 10 minutes on an H100
  serve.py --models dense --kinds bf16 w4a16 --json FILE
  serve.py --cpu --models small              on the CPU: a Llama of 1 B, decoding alone, eager
  serve.py --cpu --models small --llama-bench PROGRAM       and llama.cpp's with the same weights, in GGUF

Needs PyTorch 2.11 and transformers 5.17 or newer; without --cpu a GPU, and this package built with CUDA.
"""

import argparse
import gc
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import torch._inductor.config
import transformers
import transformers.initialization
from torch import nn

import nvfp4
from nvfp4 import transformers as backend
from nvfp4._forms import FORMS
from nvfp4.torch.modules import PackedModule, fuse, pack

transformers.utils.logging.set_verbosity_error()
CACHE, PROMPT = 512, 8
DEVICE = "cuda"


def dense():
    return transformers.LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192, rms_norm_eps=1e-5)


def moe():
    return transformers.Qwen3MoeConfig(
        hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_hidden_layers=24,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        vocab_size=151936, max_position_embeddings=8192)


def small():
    """Like Llama 3.2 of 1 B."""
    return transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192, rms_norm_eps=1e-5,
        tie_word_embeddings=True)


MODELS = {"dense": dense, "moe": moe, "small": small}
KINDS = ("bf16", "w4a16", "w4a4")


def fill(module):
    """Random codes; scales and global scales for weights of about 0.02; inputs up to 2688 · 0.004."""
    for name, buffer in module._buffers.items():
        if buffer is None:
            continue
        if buffer.dtype == torch.uint8:
            buffer.random_(0, 256)
        elif buffer.dtype == torch.float8_e4m3fn:
            buffer.view(torch.uint8).random_(0x34, 0x3C)
        else:
            buffer.fill_(0.004 if "input" in name else 0.0066)


def quantized(model, scheme):
    """Puts random packed weights in the place of all linear layers but lm_head and routers."""
    form, w4a4 = FORMS["modelopt"], scheme == "w4a4"
    for name, module in list(model.named_modules()):
        if hasattr(module, "gate_up_proj") and isinstance(module.gate_up_proj, nn.Parameter):
            fill(backend.Nvfp4Experts.take_over(module, form, name, w4a4, w4a4, device=DEVICE))
        elif type(module) is nn.Linear and name != "lm_head":
            parent, _, last = name.rpartition(".")
            new = backend.Nvfp4Linear(form, name, module.out_features, module.in_features, module.bias,
                                      w4a4, w4a4, device=DEVICE)
            setattr(model.get_submodule(parent), last, new)
            fill(new)
    fuse(model)
    return pack(model)


def build(config, kind):
    torch.manual_seed(0)
    if DEVICE == "cpu":  # which takes a minute to draw 1 B of weights: some thousand, again and again
        with transformers.initialization.no_init_weights():
            model = transformers.AutoModelForCausalLM.from_config(config(), dtype=torch.bfloat16).eval()
        drawn = (0.02 * torch.randn(1 << 20)).to(torch.bfloat16)
        for p in model.parameters():
            p.data.copy_(drawn.repeat(-(-p.numel() // drawn.numel()))[:p.numel()].view(p.shape) if p.dim() > 1
                         else torch.ones_like(p))
        model.tie_weights()
    else:
        with torch.device(DEVICE):
            model = transformers.AutoModelForCausalLM.from_config(config(), dtype=torch.bfloat16).eval()
    before = quantized_bytes(model)
    if kind != "bf16":
        quantized(model, kind)
        collect()
    return model, before


def collect():
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()


def quantized_bytes(model):
    """Returns the bytes of linear layers except lm_head, and of experts: parameters and buffers."""
    total = 0
    for name, m in model.named_modules():
        stack = isinstance(getattr(m, "gate_up_proj", None), nn.Parameter)
        if (isinstance(m, (nn.Linear, PackedModule)) and name != "lm_head") or stack:
            total += sum(t.numel() * t.element_size()
                         for t in (*m.parameters(recurse=False), *m.buffers(recurse=False)))
    return total


def milliseconds(function, repeats=20, warmup=3):
    for _ in range(warmup):
        function()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


def captured(function):
    """A CUDA graph of function()."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


def kernel_milliseconds(graph, repeats=20):
    """Milliseconds of one replay by kernel. A kernel that starts before the one before it has ended, as dependent
    launch lets it, counts from that end, so that no time counts twice."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            graph.replay()
        torch.cuda.synchronize()
    kernels = sorted((event.time_range.start, event.time_range.end, event.name) for event in profile.events()
                     if event.device_type == torch.autograd.DeviceType.CUDA)
    by_kernel, ended = {}, 0.0
    for start, end, name in kernels:
        by_kernel[name] = by_kernel.get(name, 0) + max(0.0, end - max(start, ended)) / 1e3 / repeats
        ended = max(ended, end)
    return by_kernel


def split(by_kernel):
    """Milliseconds in (our products, our other kernels, all others)."""
    ours = {name: ms for name, ms in by_kernel.items() if "nvfp4" in name}
    products_ms = sum(ms for name, ms in ours.items() if "gemm" in name)
    return products_ms, sum(ours.values()) - products_ms, sum(by_kernel.values()) - sum(ours.values())


@torch.no_grad()
def decode(model, batch):
    """Milliseconds a step, how long compiling took, and the milliseconds of each kernel."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=CACHE)
    tokens = torch.arange(batch * PROMPT, device=DEVICE).reshape(batch, PROMPT)
    model(input_ids=tokens, past_key_values=cache, use_cache=True)
    token = tokens[:, -1:].clone()
    start = time.monotonic()
    compiled = torch.compile(model, fullgraph=True, dynamic=False)

    def step():
        logits = compiled(input_ids=token, past_key_values=cache, use_cache=True).logits
        token.copy_(logits[:, -1:].argmax(-1))

    step()
    torch.cuda.synchronize()
    compiling = time.monotonic() - start
    graph = captured(step)
    return milliseconds(graph.replay, repeats=200, warmup=20), compiling, kernel_milliseconds(graph)


@torch.no_grad()
def products(model, batch):
    """Milliseconds of one step's quantized or plain products alone, in a CUDA graph: (linear layers and
    experts, head)."""
    config = model.config
    layers, head = [], model.lm_head
    for name, m in model.named_modules():
        fused = getattr(m, "fused", None)
        if isinstance(m, nn.Linear) and m is not head and (fused is None or fused.parts[0] is m):
            layers.append(m)
        elif "Experts" in type(m).__name__:
            layers.append(m)
    inputs = {size: torch.randn(batch, size, device=DEVICE, dtype=torch.bfloat16)
              for size in {m.in_features for m in layers if hasattr(m, "in_features")} |
              {config.hidden_size}}
    top = getattr(config, "num_experts_per_tok", 0)
    ids = torch.arange(batch * top, device=DEVICE).reshape(batch, -1) * 7 % max(getattr(config, "num_experts", 1), 1)
    weights = torch.full((batch, max(top, 1)), 0.1, device=DEVICE, dtype=torch.bfloat16)

    def run():
        for m in layers:
            if hasattr(m, "in_features"):
                m(inputs[m.in_features].clone() if getattr(m, "fused", None) else inputs[m.in_features])
            else:
                m(inputs[config.hidden_size], ids, weights)

    return (milliseconds(captured(run).replay),
            milliseconds(captured(lambda: head(inputs[config.hidden_size])).replay))


@torch.no_grad()
def prefill(model, tokens=4096):
    ids = torch.arange(tokens, device=DEVICE).reshape(1, tokens) % 1000
    return milliseconds(lambda: model(input_ids=ids, use_cache=False, logits_to_keep=1), 5, 2)


def reading_speed():
    """GB/s of a plain read of 2 GB."""
    data = torch.zeros(1 << 28, dtype=torch.int64, device=DEVICE)
    return data.numel() * 8 / milliseconds(lambda: data.max()) / 1e6


def measure(name, kind, batches):
    torch.cuda.reset_peak_memory_stats()
    left = torch.cuda.memory_allocated()  # by the graphs of the model before
    model, plain_bytes = build(MODELS[name], kind)
    held = torch.cuda.memory_allocated() - left
    layer_bytes = quantized_bytes(model)
    prefill_ms = prefill(model)
    results = []
    for batch in batches:
        gemm_ms, head_ms = products(model, batch)
        token_ms, compiling, by_kernel = decode(model, batch)
        gemm_kernels, our_others, others = split(by_kernel)
        result = dict(model=name, kind=kind, batch=batch, tokens_per_second=batch * 1e3 / token_ms, token_ms=token_ms,
                      products_ms=gemm_ms, head_ms=head_ms, rest_ms=token_ms - gemm_ms - head_ms,
                      gemm_kernels_ms=gemm_kernels, our_other_kernels_ms=our_others, other_kernels_ms=others,
                      prefill_ms=prefill_ms, memory_gb=held / 1e9, quantized_gb=layer_bytes / 1e9,
                      of_bf16=layer_bytes / plain_bytes, compile_s=compiling)
        show(result)
        result["kernels_ms"] = dict(sorted(by_kernel.items(), key=lambda kernel: -kernel[1])[:24])
        results.append(result)
    del model
    torch._dynamo.reset()
    collect()
    return results


@torch.no_grad()
def measure_on_cpu(name, kind, tokens=24):
    """Tokens per second of one sequence, eager, the median of `tokens`; nothing else."""
    model, plain_bytes = build(MODELS[name], kind)
    cache = transformers.StaticCache(config=model.config, max_cache_len=CACHE)
    token = torch.arange(PROMPT).reshape(1, PROMPT)
    times = []
    for _ in range(tokens + 4):
        start = time.perf_counter()
        logits = model(input_ids=token, past_key_values=cache, use_cache=True).logits
        token = logits[:, -1:].argmax(-1)
        times.append(time.perf_counter() - start)
    token_ms = 1e3 * statistics.median(times[4:])
    layers = quantized_bytes(model)
    # What a token reads: all weights but rows of the embedding, which is the head where both are one.
    held = {t.data_ptr(): t for t in (*model.parameters(), *model.buffers())}
    embedding = model.get_input_embeddings().weight
    read = sum(t.numel() * t.element_size() for t in held.values())
    if not model.config.tie_word_embeddings:
        read -= embedding.numel() * embedding.element_size()
    result = dict(model=name, kind=kind, threads=torch.get_num_threads(), tokens_per_second=1e3 / token_ms,
                  token_ms=token_ms, read_gb=read / 1e9, read_gb_per_s=read / token_ms / 1e6,
                  quantized_gb=layers / 1e9, of_bf16=layers / plain_bytes)
    show(result)
    del model
    collect()
    return result


def measure_llama_cpp(program, name, tokens=24):
    """llama.cpp's tokens per second on our GGUF file of the model, its output matrix in BF16."""
    with tempfile.TemporaryDirectory() as folder:
        plain, file = pathlib.Path(folder, "plain"), pathlib.Path(folder, "model.gguf")
        model, _ = build(MODELS[name], "bf16")
        model.save_pretrained(plain)
        vocabulary = {f"t{i}": i for i in range(model.config.vocab_size)}  # it loads no file without one
        (plain / "tokenizer.json").write_text(json.dumps(
            {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
             "model": {"type": "BPE", "vocab": vocabulary, "merges": ["t 1"]}}))
        del model
        collect()
        nvfp4.quantize_checkpoint(plain, file, format="gguf")
        threads = torch.get_num_threads()
        printed = subprocess.run([program, "-m", file, "-t", str(threads), "-p", "0", "-n", str(tokens), "-r", "3",
                                  "-o", "json"], check=True, capture_output=True, text=True).stdout
    bench = json.loads(printed)[0]
    token_ms = 1e3 / statistics.median(bench["samples_ts"])
    result = dict(model=name, kind="llama.cpp", threads=threads, tokens_per_second=1e3 / token_ms, token_ms=token_ms,
                  read_gb=bench["model_size"] / 1e9, read_gb_per_s=bench["model_size"] / token_ms / 1e6,
                  build=bench["build_commit"])
    show(result)
    return result


def show(result):
    print("  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in result.items()),
          flush=True)


def on_cpu(options):
    global DEVICE
    DEVICE = "cpu"
    results = [measure_on_cpu(name, kind) for name in options.models for kind in options.kinds]
    if options.llama_bench:
        results += [measure_llama_cpp(options.llama_bench, name) for name in options.models]
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    base = {r["model"]: r for r in results if r["kind"] == "bf16"}
    for r in results:
        plain = base.get(r["model"])
        if r["kind"] != "bf16" and plain:
            print(f"{r['model']} {r['kind']}: {plain['token_ms'] / r['token_ms']:.2f} x tokens per second; "
                  f"BF16 reads {plain['read_gb'] / r['read_gb']:.2f} x the bytes")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", nargs="+", default=["dense", "moe"], choices=MODELS)
    a.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    a.add_argument("--batches", nargs="+", type=int, default=[1])
    a.add_argument("--json", metavar="FILE")
    a.add_argument("--no-pdl", action="store_true", help="compiled kernels without programmatic dependent launch")
    a.add_argument("--cpu", action="store_true", help="on the CPU, decoding alone, with OMP_NUM_THREADS threads")
    a.add_argument("--llama-bench", metavar="PROGRAM", help="llama.cpp's benchmark, beside ours on the CPU")
    options = a.parse_args()
    if options.cpu:
        return on_cpu(options)
    torch._inductor.config.triton.enable_pdl = not options.no_pdl
    machine = dict(gpu=torch.cuda.get_device_name(), torch=torch.__version__, pdl=not options.no_pdl,
                   transformers=transformers.__version__, nvfp4=nvfp4.__version__,
                   read_gb_per_s=reading_speed())
    print(machine, flush=True)
    results = []
    for name in options.models:
        for kind in options.kinds:
            results += measure(name, kind, options.batches)
            if options.json:  # after each, so that an interrupted run leaves what it has
                with open(options.json, "w") as file:
                    json.dump(dict(machine=machine, results=results), file, indent=1)
    base = {(r["model"], r["batch"]): r for r in results if r["kind"] == "bf16"}
    for r in results:
        if r["kind"] != "bf16" and (r["model"], r["batch"]) in base:
            plain = base[r["model"], r["batch"]]
            print(f"{r['model']} {r['kind']}, batch {r['batch']}: {plain['token_ms'] / r['token_ms']:.2f} x tokens per second, "
                  f"prefill {r['prefill_ms'] / plain['prefill_ms']:.2f} x the time, memory "
                  f"{r['memory_gb'] / plain['memory_gb']:.3f}, quantized layers {r['of_bf16']:.3f}")


if __name__ == "__main__":
    main()
