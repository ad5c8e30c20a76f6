#!/usr/bin/env python3
"""Time of one layer of experts on a GPU: torch.ops.nvfp4.moe, the operators that it replaces, and BF16.

usage: PYTHONPATH=<build>/python bench/torch_moe.py [TOKENS...]    sizes of Qwen3-30B-A3B, W4A16, CUDA graphs, best of 7
"""

import sys

import torch

import nvfp4
from nvfp4.torch import experts
from nvfp4.torch.operators import InputMode, pack_bytes

EXPERTS, HIDDEN, INNER, TOP_K = 128, 2048, 768, 8
TOKENS = (1, 8, 32, 128, 512, 1024, 4096)


def quantized(rows, cols):
    parts = [nvfp4.quantize(torch.randn(rows, cols, device="cuda") / 30, "max") for _ in range(EXPERTS)]
    return [(q.codes, q.scales, q.global_scale, "w") for q in parts]


def swiglu(y):
    gate, up = y.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


class Layer:
    def __init__(self):
        gate_up, down = quantized(2 * INNER, HIDDEN), quantized(HIDDEN, INNER)
        self.fused, self.down = pack_bytes(gate_up, EXPERTS, 0), pack_bytes(down, EXPERTS)
        self.stacks = (experts.Stack(pack_bytes(gate_up, EXPERTS), 2 * INNER),
                       experts.Stack(self.down, HIDDEN))
        self.w = [torch.randn(EXPERTS, *shape, device="cuda", dtype=torch.bfloat16) / 30
                  for shape in ((HIDDEN, 2 * INNER), (INNER, HIDDEN))]

    def moe(self, x, ids, weights):
        return torch.ops.nvfp4.moe(x, self.fused, self.down, ids, weights, INNER, EXPERTS, None, None, InputMode.NONE, None,
                                   True)

    def operators(self, x, ids, weights):
        y = experts.forward(x, ids.long(), *self.stacks, EXPERTS, InputMode.NONE, swiglu)
        return (y * weights.unsqueeze(-1)).sum(1).to(x.dtype)

    def bf16(self, x, ids, weights):
        order = torch.argsort(ids.reshape(-1))
        ends = torch.searchsorted(ids.reshape(-1)[order].contiguous(),
                                  torch.arange(EXPERTS, device="cuda", dtype=ids.dtype), right=True).to(torch.int32)
        y = swiglu(torch._grouped_mm(x[order // TOP_K], self.w[0], offs=ends))
        y = torch._grouped_mm(y, self.w[1], offs=ends)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device="cuda"))
        return (y[back].view(*ids.shape, HIDDEN) * weights.unsqueeze(-1)).sum(1).to(x.dtype)


def microseconds(function, *arguments, calls=4, replays=5):
    for _ in range(3):
        function(*arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function(*arguments)
    best = float("inf")
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1000 / (calls * replays))
    return best


def main():
    torch.manual_seed(0)
    layer = Layer()
    print(f"{torch.cuda.get_device_name()}, µs\n{'tokens':>7} {'experts':>8} {'moe':>9} {'operators':>10} {'BF16':>9}")
    for tokens in [int(t) for t in sys.argv[1:]] or TOKENS:
        x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
        ids = torch.rand(tokens, EXPERTS, device="cuda").argsort(1)[:, :TOP_K].to(torch.int32).contiguous()
        times = [microseconds(f, x, ids, torch.rand(tokens, TOP_K, device="cuda"))
                 for f in (layer.moe, layer.operators, layer.bf16)]
        print(f"{tokens:7} {ids.unique().numel():8} {times[0]:9.1f} {times[1]:10.1f} {times[2]:9.1f}", flush=True)


if __name__ == "__main__":
    main()
