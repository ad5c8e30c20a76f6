"""torch.ops.nvfp4.moe on the CPU and, where there is one, on a GPU."""

import math

import pytest

torch = pytest.importorskip("torch")

import nvfp4  # noqa: E402
import nvfp4.torch  # noqa: E402, F401
from nvfp4.torch import experts, operators  # noqa: E402
from nvfp4.torch.operators import InputMode, pack_bytes  # noqa: E402

E, H, I = 6, 96, 64
GPU = torch.cuda.is_available() and any(d["available"] for d in nvfp4.devices())
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not GPU, reason="no GPU from sm_80 on"))]
MODES = {"keep": InputMode.NONE, "measure": InputMode.DYNAMIC_PER_ROW, "multiply": InputMode.STATIC}


class Experts:
    """Random experts on a device: packed for torch.ops.nvfp4.moe, and in a form for separate operators."""

    def __init__(self, device, mode=InputMode.NONE, intermediate=I, seed=0):
        torch.manual_seed(seed)
        self.mode, self.intermediate = mode, intermediate
        self.fused = operators.fuses_swiglu(torch.device(device), intermediate, mode)
        shapes = (2 * intermediate, H), (H, intermediate)
        scales = (torch.full((1,), 0.01), 0.001 * (1 + torch.arange(E))) if mode == InputMode.STATIC else (None, None)
        self.scales = [None if s is None else s.to(device) for s in scales]
        quantized = [[nvfp4.quantize((torch.randn(shape) / 8).to(device), "max") for _ in range(E)] for shape in shapes]
        parts = [[(q.codes, q.scales, q.global_scale, "w") for q in part] for part in quantized]
        self.gate_up = pack_bytes(parts[0], E, 0 if self.fused else None)
        self.down = pack_bytes(parts[1], E)
        self.stacks = [experts.Stack(pack_bytes(part, E), shape[0], scale)
                       for part, shape, scale in zip(parts, shapes, self.scales)]

    def __call__(self, x, ids, weights, limit=None):
        return torch.ops.nvfp4.moe(x, self.gate_up, self.down, ids, weights, self.intermediate, E, *self.scales,
                                   self.mode, limit, self.fused)

    def by_operators(self, x, ids, weights, limit=None):
        def gate(y):
            left, right = y.float().chunk(2, dim=-1)
            if limit is not None:
                left, right = left.clamp(max=limit), right.clamp(-limit, limit)
            return (torch.nn.functional.silu(left) * right).to(y.dtype)

        here = ((ids >= 0) & (ids < E)).unsqueeze(-1)
        y = experts.by_expert(x, ids.long(), *self.stacks, E, self.mode, gate) * here
        return (y.float() * weights.unsqueeze(-1)).sum(1).to(x.dtype)


def call(device, tokens, top_k=2, dtype=torch.bfloat16, seed=1):
    torch.manual_seed(seed)
    ids = torch.rand(tokens, E).argsort(dim=1)[:, :top_k].to(torch.int32)
    return torch.randn(tokens, H).to(device, dtype), ids.to(device), torch.rand(tokens, top_k).to(device)


def far(got, expected):
    return float((got.float() - expected.float()).abs().max() / expected.float().std())


def error(got, expected):
    return float((got.float() - expected.float()).norm() / expected.float().norm())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tokens", (1, 3, 40, 700))
@pytest.mark.parametrize("device", DEVICES)
def test_agrees_with_separate_operators(device, tokens, mode):
    experts, (x, ids, weights) = Experts(device, MODES[mode]), call(device, tokens)
    # W4A4: an input of down may have another code where the separate SwiGLU was rounded to BF16.
    assert error(experts(x, ids, weights), experts.by_operators(x, ids, weights)) <= (0.01 if mode == "keep" else 0.1)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_an_expert_are_independent(device):
    experts, (x, ids, weights) = Experts(device), call(device, 50)
    together = experts(x, ids, weights)
    assert far(torch.cat([experts(x[i:i + 2], ids[i:i + 2], weights[i:i + 2]) for i in range(0, 50, 2)]), together) <= .06


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tokens", (1, 30))
def test_ids_of_other_ranks_add_nothing(device, tokens):
    experts, (x, ids, weights) = Experts(device), call(device, tokens)
    elsewhere = ids.clone()
    elsewhere[:, 0] = torch.where(torch.arange(tokens, device=device) % 2 == 0, -1, E)
    alone = weights.clone()
    alone[:, 0] = 0
    assert torch.equal(experts(x, elsewhere, weights), experts(x, ids, alone))
    assert not experts(x, torch.full_like(ids, -1), weights).any()


@pytest.mark.parametrize("device", DEVICES)
def test_limit_clamps_gate_and_up(device):
    experts, (x, ids, weights) = Experts(device), call(device, 20)
    clamped = experts(x, ids, weights, 0.25)
    assert far(clamped, experts.by_operators(x, ids, weights, 0.25)) <= 0.06
    assert far(clamped, experts(x, ids, weights)) > 0.1


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("device", DEVICES)
def test_dtypes_sizes_and_types_of_ids(device, dtype):
    experts = Experts(device, intermediate=80)
    x, ids, weights = call(device, 5, 3, dtype)
    expected = experts.by_operators(x, ids, weights)
    for index in (torch.int32, torch.int64):
        y = experts(x, ids.to(index), weights.to(torch.float32))
        assert y.dtype == dtype and far(y, expected) <= 0.06
    assert experts(x[:0], ids[:0], weights[:0]).shape == (0, H)


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_replace_others_are_used(device):
    experts, (x, ids, weights) = Experts(device, InputMode.STATIC), call(device, 20)
    before = experts(x, ids, weights)
    for name, other in (("down", Experts(device, InputMode.STATIC, seed=1).down), ("scales", [s * 3 for s in experts.scales])):
        kept = getattr(experts, name)
        setattr(experts, name, other)
        assert error(experts(x, ids, weights), before) > 0.01, name
        setattr(experts, name, kept)
        assert torch.equal(experts(x, ids, weights), before)


def test_shapes_are_known_without_running():
    experts, (x, ids, weights) = Experts("cpu"), call("cpu", 4)
    compiled = torch.compile(lambda *a: experts(*a) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, ids, weights), experts(x, ids, weights) + 1)


def test_wrong_arguments_are_named():
    experts, (x, ids, weights) = Experts("cpu"), call("cpu", 4)
    with pytest.raises(nvfp4.ShapeError, match=r"weights \[2, 2\], must be"):
        experts(x, ids, weights[:2])
    with pytest.raises(nvfp4.InvalidValueError, match="input_mode = 7"):
        torch.ops.nvfp4.moe(x, experts.gate_up, experts.down, ids, weights, I, E, None, None, 7)
    with pytest.raises(nvfp4.UnsupportedError, match="x is on cpu, ids on meta, weights on cpu, must be on cpu"):
        operators.moe(x, experts.gate_up, experts.down, ids.to("meta"), weights, I, E)


@pytest.mark.skipif(not GPU, reason="no GPU from sm_80 on")
@pytest.mark.parametrize("mode", MODES)
def test_a_captured_graph_routes_anew(mode):
    """Nothing waits for the GPU, and a replay follows the ids that lie there then."""
    experts = Experts("cuda", MODES[mode])
    for tokens in (1, 2, 8, 33, 300):
        (x, ids, weights), others = call("cuda", tokens), call("cuda", tokens, seed=2)
        for _ in range(2):
            experts(x, ids, weights)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = experts(x, ids, weights)
        for given in ((x, ids, weights), others):
            for held, value in zip((x, ids, weights), [t.clone() for t in given]):
                held.copy_(value)
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(out, experts(x, ids, weights))


@pytest.mark.skipif(not GPU, reason="no GPU from sm_80 on")
def test_many_experts_and_rows_on_a_gpu():
    """Ids on the host would be a wait for the GPU, which sync debug mode refuses."""
    experts, given = Experts("cuda"), call("cuda", 9000)
    experts(*given)
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = experts(*given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert math.isfinite(float(y.float().abs().sum()))


@pytest.mark.parametrize("device", DEVICES)
def test_other_sizes_of_the_same_weights_are_refused(device):
    experts, (x, ids, weights) = Experts(device), call(device, 4)
    experts(x, ids, weights)
    for wide, intermediate, count in ((x.repeat(1, 2), I, E), (x, 2 * I, E), (x, I, 2 * E)):
        with pytest.raises(nvfp4.ShapeError):
            torch.ops.nvfp4.moe(wide, experts.gate_up, experts.down, ids, weights, intermediate, count, *experts.scales,
                                experts.mode, None, experts.fused)
