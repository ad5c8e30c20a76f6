"""torch.ops.nvfp4.*: shapes known without running, opaque to torch.compile."""

import ctypes
import gc
import inspect
import os
import pathlib
import signal

import pytest

torch = pytest.importorskip("torch")

import nvfp4  # noqa: E402
from nvfp4.torch import operators as layers  # noqa: E402
from reference import normal  # noqa: E402

GLOBAL = torch.tensor([0.01])
FLASHINFERS = ("nvfp4_quantize", "e2m1_and_ufp8sf_scale_to_float", "block_scale_interleave",
               "silu_and_mul_nvfp4_quantize", "rmsnorm_fp4quant", "add_rmsnorm_fp4quant", "mm_fp4",
               "grouped_mm_fp4")


def tensor(seed, *shape):
    return torch.from_numpy(normal(seed, *shape)).bfloat16()


def cases():
    x, weight = tensor(1, 5, 64), tensor(2, 64)
    codes, scales = nvfp4.nvfp4_quantize(x, 100.0)
    b, b_scales = nvfp4.nvfp4_quantize(tensor(3, 24, 64), 100.0)
    q = nvfp4.quantize(x, scope="vector")
    yield "quantize", (x,)
    yield "quantize", (x, "max", None, 1 / GLOBAL)
    for layout in ("linear", "tiled_128x4", "tiled_8x4", "packed_row_major", "packed_mn_major"):
        yield "quantize", (x, "mse", None, None, layout, "vector")
    yield "dequantize", (q.codes, q.scales, q.global_scale, torch.bfloat16)
    for layout in range(3):
        yield "nvfp4_quantize", (tensor(4, 2, 3, 80), 1 / GLOBAL, layout)
    yield "e2m1_and_ufp8sf_scale_to_float", (codes, scales, GLOBAL)
    yield "e2m1_and_ufp8sf_scale_to_float", (*nvfp4.nvfp4_quantize(x, 100.0, 1), GLOBAL, True, True)
    yield "block_scale_interleave", (q.scales,)
    yield "block_scale_interleave", (torch.stack((q.scales, q.scales)),)
    yield "silu_and_mul_nvfp4_quantize", (tensor(5, 5, 128), 1 / GLOBAL)
    yield "silu_and_mul_nvfp4_quantize", (tensor(5, 5, 160), 1 / GLOBAL, True, True)
    yield "silu_and_mul_nvfp4_quantize", (tensor(5, 2, 5, 128), 1 / GLOBAL, False)
    yield "rmsnorm_fp4quant", (x, weight, 1 / GLOBAL)
    yield "rmsnorm_fp4quant", (x, weight, 1 / GLOBAL, 1e-5, True)
    yield "add_rmsnorm_fp4quant", (x.clone(), x.clone(), weight, 1 / GLOBAL)
    yield "add_rmsnorm_fp4quant", (x.clone(), x.clone(), weight, 1 / GLOBAL, 1e-6, True)
    yield "mm_fp4", (codes, b.T, scales, b_scales.T, GLOBAL)
    yield "mm_fp4", (codes, b.T, scales, b_scales.T)
    yield "grouped_mm_fp4", (codes, torch.stack((b, b)), scales, torch.stack((b_scales, b_scales)),
                             torch.tensor([0, 2, 5], dtype=torch.int32), GLOBAL)


@pytest.mark.parametrize("name", ["quantize", *FLASHINFERS])
def test_arguments_equal_those_of_the_function(name):
    function = inspect.signature(getattr(nvfp4, name)).parameters
    schema = getattr(torch.ops.nvfp4, name).default._schema.arguments
    names = [a.name for a in schema]
    assert [a for a in function if a in names] == names
    for argument in schema:
        default = function[argument.name].default
        assert argument.has_default_value() == (default is not inspect.Parameter.empty), argument
        if argument.name == "out_dtype":  # by its name there, a number in PyTorch's schema
            continue
        default = getattr(default, "value", default)  # of an SfLayout
        if argument.has_default_value():
            assert argument.default_value == default, argument


def layer_cases():
    x, scale = tensor(6, 6, 64), torch.tensor([0.01])
    weights = [nvfp4.quantize(tensor(7 + g, 24, 64)) for g in range(3)]
    one = torch.from_numpy(nvfp4.pack_weights(weights[0]).data.copy())
    three = torch.from_numpy(nvfp4.pack_weights(*weights, groups=3).data.copy())
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    ids = torch.tensor([[2, 0], [1, 1], [0, 2]])
    for mode in layers.InputMode:
        yield "linear", (x.reshape(2, 3, 64), one, 24, torch.ones(24), scale, mode)
        yield "grouped_linear", (x, three, 24, ends, scale, mode)
        yield "routed_linear", (x, three, 24, 3, ids, scale, mode)
        yield "routed_linear", (x[:3], three, 24, 3, ids, scale, mode)


@pytest.mark.parametrize("name, arguments", list(layer_cases()))
def test_layers_know_shape_and_dtype(name, arguments):
    torch.library.opcheck(getattr(torch.ops.nvfp4, name).default, arguments,
                          test_utils=("test_schema", "test_faketensor"))


def test_linear_and_its_layer_pass_the_arithmetic_on():
    layer = nvfp4.torch.Nvfp4Linear.from_linear(torch.nn.Linear(64, 32), scheme="w4a16")
    y, x = layer(tensor(6, 6, 64)), tensor(6, 6, 64)
    assert torch.equal(torch.ops.nvfp4.linear(x, layer.weight, 32, layer.bias, arithmetic="exact"), y)
    layer.arithmetic = "fp8"
    with pytest.raises(nvfp4.UnsupportedError, match="arithmetic = fp8, must be exact on the CPU"):
        layer(x)
    with pytest.raises(nvfp4.InvalidValueError, match="arithmetic = 'fp4', must be one of exact, fp8"):
        torch.ops.nvfp4.linear(x, layer.weight, 32, arithmetic="fp4")


def test_routed_rows_are_those_of_their_matrix():
    x = tensor(6, 6, 64)
    weights = [nvfp4.quantize(tensor(7 + g, 24, 64)) for g in range(3)]
    packed = nvfp4.pack_weights(*weights, groups=3)
    ids = torch.tensor([[2, 0], [1, 1], [0, 2]], dtype=torch.int32)
    for given in x, x[:3]:
        y = nvfp4.gemm(given, packed, expert_ids=ids)
        for row, expert in enumerate(ids.flatten().tolist()):
            source = given[row if len(given) == 6 else row // 2]
            assert torch.equal(y[row], nvfp4.gemm(source[None], nvfp4.pack_weights(weights[expert]))[0])
    with pytest.raises(nvfp4.ShapeError, match=r"x has shape \[4, 64\], must be \[3, K\] or \[6, K\]"):
        nvfp4.gemm(x[:4], packed, expert_ids=ids)
    with pytest.raises(ValueError):
        nvfp4.gemm(x, packed, expert_ids=ids + 1)


def packed_bytes():
    return torch.from_numpy(nvfp4.pack_weights(nvfp4.quantize(tensor(7, 2048, 512))).data.copy())


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.delenv("NVFP4_THREADS", raising=False)
    monkeypatch.setattr(layers, "_threads", None)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)
    layers._core.set_parallel_region(0)


def test_threads_of_pytorch_give_the_same_bits(three_threads, monkeypatch):
    x, weights = tensor(6, 3, 512), packed_bytes()
    folder = pathlib.Path(torch.__file__).parent
    brought = [*folder.glob("lib/libgomp*"), *folder.with_name("torch.libs").glob("libgomp*")]
    assert (layers._gomp_parallel() != 0) == bool(brought)
    calls = []
    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def run(function, data, count, flags):
        calls.append((count, flags))
        function(data)

    region = ctypes.CFUNCTYPE(None, body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(run)
    monkeypatch.setattr(layers, "_gomp_parallel", lambda: ctypes.cast(region, ctypes.c_void_p).value)
    y = torch.ops.nvfp4.linear(x, weights, 2048)
    assert calls and set(calls) == {(3, 0)}
    layers._core.set_parallel_region(0)
    assert torch.equal(torch.ops.nvfp4.linear(x, weights, 2048), y)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_products_run_in_a_forked_child(three_threads):
    torch.randn(1 << 21).exp()  # which starts them
    x, weights = tensor(6, 3, 512), packed_bytes()
    y = torch.ops.nvfp4.linear(x, weights, 2048)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a hang ends as a signal
        layers._threads = None  # as where nothing was multiplied before
        same = torch.equal(torch.ops.nvfp4.linear(x, weights, 2048), y)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_weights_that_were_used_can_go():
    gc.collect()  # models of other tests
    before = len(layers._seen)
    weights = torch.from_numpy(nvfp4.pack_weights(nvfp4.quantize(tensor(7, 24, 64))).data.copy())
    for rows in 1, 3:
        torch.ops.nvfp4.linear(tensor(6, rows, 64), weights, 24)
    assert len(layers._seen) == before + 1
    del weights
    gc.collect()
    assert len(layers._seen) == before


def gradient_cases():
    """name, arguments after x, the matrix of each row of the result, rows of x."""
    weights = [nvfp4.quantize(tensor(7 + g, 24, 64)) for g in range(3)]
    one = torch.from_numpy(nvfp4.pack_weights(weights[0]).data.copy())
    three = torch.from_numpy(nvfp4.pack_weights(*weights, groups=3).data.copy())
    matrices = [nvfp4.dequantize(w) for w in weights]
    ends, ids = torch.tensor([2, 2, 5], dtype=torch.int32), torch.tensor([[2, 0], [1, 1], [0, 2]])
    by_id = [matrices[e] for e in ids.flatten()]
    yield "linear", (one, 24, tensor(11, 24).float()), [matrices[0]] * 6, 6
    yield "grouped_linear", (three, 24, ends), [matrices[0]] * 2 + [matrices[2]] * 3 + [torch.zeros(24, 64)], 6
    yield "routed_linear", (three, 24, 3, ids), by_id, 6
    yield "routed_linear", (three, 24, 3, ids), by_id, 3


@pytest.mark.parametrize("name, arguments, matrices, rows", list(gradient_cases()))
def test_gradients_are_those_of_the_decoded_weights(name, arguments, matrices, rows):
    x, gradient = tensor(6, rows, 64).float().requires_grad_(), tensor(11, 6, 24).float().requires_grad_()
    bias = [a.requires_grad_() for a in arguments if isinstance(a, torch.Tensor) and a.is_floating_point()]
    y = getattr(torch.ops.nvfp4, name)(x, *arguments)
    (to_x, *to_bias), w = torch.autograd.grad(y, [x, *bias], gradient, create_graph=True), torch.stack(matrices)
    expected = torch.einsum("mn,mnk->mk", gradient, w).view(rows, 6 // rows, 64).sum(1)
    torch.testing.assert_close(to_x, expected)
    for of_bias in to_bias:
        torch.testing.assert_close(of_bias, gradient.sum(0))
    change = tensor(12, rows, 64).float()  # of a gradient's gradient
    (to_gradient,) = torch.autograd.grad(to_x, gradient, change)
    repeated = change.repeat_interleave(6 // rows, 0)
    torch.testing.assert_close(to_gradient, torch.einsum("mk,mnk->mn", repeated, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name, arguments, matrices, rows", list(gradient_cases()))
def test_compilers_know_the_gradients(name, arguments, matrices, rows):
    torch.library.opcheck(getattr(torch.ops.nvfp4, name).default, (tensor(6, rows, 64).float().requires_grad_(), *arguments))


@pytest.mark.parametrize("mode, scale, message", [
    (3, GLOBAL, "input_mode = 3, must be one of 0"), (-1, GLOBAL, "input_mode = -1, must be one of 0"),
    (layers.InputMode.STATIC, None, "input_mode = 2 without input_scale")])
def test_unknown_input_modes_are_refused(mode, scale, message):
    x, weights = tensor(6, 3, 512), packed_bytes()
    for rows in x, x[:0]:
        with pytest.raises(nvfp4.InvalidValueError, match=message):
            torch.ops.nvfp4.linear(rows, weights, 2048, None, scale, mode)


@pytest.mark.parametrize("name, arguments", list(cases()))
def test_schema_and_fake_kernel(name, arguments):
    torch.library.opcheck(getattr(torch.ops.nvfp4, name).default, arguments,
                          test_utils=("test_schema", "test_faketensor"))


def test_products_with_packed_weights():
    q = nvfp4.quantize(tensor(11, 2, 70, 144))
    packed = torch.ops.nvfp4.pack_weights(q.codes, q.scales, q.global_scale)
    x, ends = tensor(12, 3, 5, 144), torch.tensor([3, 5], dtype=torch.int32)
    one = torch.ops.nvfp4.pack_weights(q.codes[0], q.scales[0], q.global_scale)
    y = torch.ops.nvfp4.gemm(x, one, 70, torch.full((1,), 0.5))
    w = nvfp4.pack_weights(nvfp4.QuantizedTensor(q.codes[0], q.scales[0], q.global_scale, (70, 144)))
    assert torch.equal(y, nvfp4.gemm(x, w, alpha=0.5))
    z = torch.ops.nvfp4.grouped_gemm(x[0], packed, 70, ends)
    assert torch.equal(z[:3], nvfp4.gemm(x[0, :3].contiguous(), w, batch_invariant=False))
    for name, arguments in (("pack_weights", (q.codes, q.scales, q.global_scale)),
                            ("gemm", (x, one, 70)), ("grouped_gemm", (x[0], packed, 70, ends))):
        torch.library.opcheck(getattr(torch.ops.nvfp4, name).default, arguments,
                              test_utils=("test_schema", "test_faketensor"))


def test_torch_compile_keeps_the_operators_whole():
    def layer(x, residual, weight, w, w_scales):
        codes, scales = torch.ops.nvfp4.add_rmsnorm_fp4quant(x, residual, weight,
                                                             1 / GLOBAL, 1e-6, True)
        y = torch.ops.nvfp4.mm_fp4(codes, w.T, scales.view(torch.uint8), w_scales.T, GLOBAL)
        return y * 2 + residual[:, :1]

    w, w_scales = nvfp4.nvfp4_quantize(tensor(7, 32, 64), 100.0)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for run in (layer, compiled):
        x, residual, weight = tensor(8, 6, 64), tensor(9, 6, 64), tensor(10, 64)
        results.append((run(x, residual, weight, w, w_scales), residual))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
