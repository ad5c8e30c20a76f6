"""PyTorch, CuPy and JAX arrays on a GPU: the bytes of the CPU, products within their bound, streams of
the framework, graphs. Skipped without a GPU."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

import nvfp4
from gpu_arrays import CuPy, Jax, Torch, needs_products, on_gpu, on_some_gpu, rounded, within_bound
from reference import divisor, normal

pytestmark = on_some_gpu
LOGICAL = ("float32", "float16", "bfloat16")


@pytest.fixture
def torch():
    return Torch().module


def same(on_gpu, got, expected):
    assert on_gpu.is_array(got)
    np.testing.assert_array_equal(on_gpu.get(got), np.asarray(expected).view(np.uint8)
                                  if np.asarray(expected).dtype.itemsize == 1 else expected)


@pytest.mark.parametrize("dtype", LOGICAL)
@pytest.mark.parametrize("method", nvfp4.method_names())
def test_quantize_and_dequantize_equal_the_cpu(on_gpu, dtype, method):
    x = rounded(normal(1, 37, 208), dtype)
    gpu = on_gpu.put(x, dtype)
    for layout in ("linear", "tiled_128x4", "packed_mn_major"):
        q, host = nvfp4.quantize(gpu, method, layout=layout), nvfp4.quantize(
            x, method, layout=layout)
        for part in ("codes", "scales", "global_scale"):
            same(on_gpu, getattr(q, part), getattr(host, part))
        same(on_gpu, nvfp4.dequantize(q), nvfp4.dequantize(host))
    try:
        fp8 = nvfp4.quantize(gpu, method, scale_dtype="float8_e4m3fn", scope="vector")
    except nvfp4.UnsupportedError as no:
        pytest.skip(str(no))
    assert nvfp4._arrays.dtype_name(fp8.scales.dtype) == "float8_e4m3fn"
    host = nvfp4.quantize(x, method, scope="vector")
    same(on_gpu, fp8.scales, host.scales)
    same(on_gpu, fp8.dequantize("bfloat16"), rounded(nvfp4.dequantize(host), "bfloat16"))
    tiled = nvfp4.relayout_scales(fp8, "tiled_8x4")
    same(on_gpu, tiled.scales, nvfp4.relayout_scales(host, "tiled_8x4").scales)
    same(on_gpu, nvfp4.amax(gpu), nvfp4.amax(x))


def test_flashinfers_names_give_the_bytes_of_the_cpu(on_gpu):
    x, weight = rounded(normal(2, 9, 128), "bfloat16"), normal(3, 128)
    gpu, gpu_weight = on_gpu.put(x, "bfloat16"), on_gpu.put(weight)
    for scale in (64.0, on_gpu.put(np.array([64.0], np.float32))):
        inverse = 1 / scale
        for got, expected in (
                (nvfp4.nvfp4_quantize(gpu, scale), nvfp4.nvfp4_quantize(x, 64.0)),
                (nvfp4.silu_and_mul_nvfp4_quantize(gpu, scale),
                 nvfp4.silu_and_mul_nvfp4_quantize(x, 64.0)),
                (nvfp4.rmsnorm_fp4quant(gpu, gpu_weight, global_scale=scale),
                 nvfp4.rmsnorm_fp4quant(x, weight, global_scale=64.0)),
                (nvfp4.nvfp4_quantize(gpu, scale / 2**20, per_token_activation=True),
                 nvfp4.nvfp4_quantize(x, 64 / 2**20, per_token_activation=True)),
                (nvfp4.silu_and_mul_nvfp4_quantize(gpu, scale, is_sf_8x4_layout=True),
                 nvfp4.silu_and_mul_nvfp4_quantize(x, 64.0, is_sf_8x4_layout=True))):
            for g, e in zip(got, expected):
                same(on_gpu, g, e)
        codes, scales = nvfp4.nvfp4_quantize(gpu, scale)
        host = nvfp4.nvfp4_quantize(x, 64.0)
        same(on_gpu, nvfp4.e2m1_and_ufp8sf_scale_to_float(codes, scales, inverse),
             nvfp4.e2m1_and_ufp8sf_scale_to_float(*host, 1 / 64))
    linear = np.arange(2 * 5 * 6, dtype=np.uint8).reshape(2, 5, 6)
    same(on_gpu, nvfp4.block_scale_interleave(on_gpu.put(linear)),
         nvfp4.block_scale_interleave(linear))


def test_the_residual_is_changed_in_place(on_gpu):
    if isinstance(on_gpu, Jax):
        pytest.skip("JAX arrays cannot be changed")
    x, residual, weight = normal(4, 5, 64), normal(5, 5, 64), normal(6, 64)
    gpu_residual = on_gpu.put(residual)
    got = nvfp4.add_rmsnorm_fp4quant(on_gpu.put(x), gpu_residual, on_gpu.put(weight),
                                     global_scale=100.0)
    expected = nvfp4.add_rmsnorm_fp4quant(x, residual, weight, global_scale=100.0)
    same(on_gpu, gpu_residual, residual)
    for g, e in zip(got, expected):
        same(on_gpu, g, e)


def quantized(x):
    """Codes, scales in tiles, divisor, and what they stand for."""
    global_sf = divisor(x)
    codes, scales = nvfp4.nvfp4_quantize(x, global_sf)
    return codes, scales, global_sf, nvfp4.e2m1_and_ufp8sf_scale_to_float(codes, scales)


SHAPES = [(1, 8, 64), (5, 40, 208), (48, 256, 128), (300, 520, 1040)]


@needs_products
@pytest.mark.parametrize("m, n, k", SHAPES)
def test_mm_fp4(on_gpu, m, n, k):
    a, a_sf, a_global, a_value = quantized(normal(7, m, k))
    b, b_sf, b_global, b_value = quantized(normal(8, n, k))
    alpha = np.float32(1) / (a_global * b_global)
    left, left_sf, right, right_sf = map(on_gpu.put, (a, a_sf, b, b_sf))
    one = np.ones(1, np.float32)
    packed = nvfp4.pack_weights(nvfp4.QuantizedTensor(right, right_sf, on_gpu.put(one), (n, k),
                                                      layout="tiled_128x4"))
    assert on_gpu.is_array(packed.data) and (packed.rows, packed.cols) == (n, k)
    for weights, scales in ((right.T, right_sf.T), (right.T, right_sf.reshape(-1)), (packed, None)):
        for factor in (float(alpha), on_gpu.put(np.array([alpha], np.float32)),
                       on_gpu.put(np.array(alpha, np.float32))):
            y = nvfp4.mm_fp4(left, weights, left_sf, scales, factor, "float32", backend="auto")
            assert on_gpu.is_array(y)
            within_bound(on_gpu.get(y), a_value, b_value, float(alpha))
    for dtype in ("bfloat16", "float16"):
        try:
            y = nvfp4.mm_fp4(left, packed, left_sf, None, float(alpha), dtype)
        except nvfp4.UnsupportedError as no:
            assert isinstance(on_gpu, CuPy) and dtype in str(no)
            continue
        assert nvfp4._arrays.dtype_name(y.dtype) == dtype
        within_bound(on_gpu.get(y), a_value, b_value, float(alpha), dtype)
    wrong = nvfp4.mm_fp4(left, packed, left_sf, None, 1.01 * float(alpha), "float32")
    with pytest.raises(AssertionError):
        within_bound(on_gpu.get(wrong), a_value, b_value, float(alpha))


@needs_products
@pytest.mark.parametrize("n, k", [(72, 192), (9, 80)])  # the second is not aligned in each group
def test_grouped_mm_fp4(on_gpu, n, k):
    ends = [0, 5, 5, 69, 71]
    a, a_sf, a_global, a_value = quantized(normal(11, 80, k))
    weights = [quantized(normal(20 + g, n, k)) for g in range(4)]
    alpha = np.array([1 / (a_global * w[2]) for w in weights], np.float32)
    left, left_sf = on_gpu.put(a), on_gpu.put(a_sf)
    b, b_sf = (on_gpu.put(np.stack([w[i] for w in weights])) for i in (0, 1))
    one = on_gpu.put(np.ones(1, np.float32))
    packed = nvfp4.pack_weights(
        *(nvfp4.QuantizedTensor(b[g], b_sf[g], one, (n, k), layout="tiled_128x4")
          for g in range(4)), groups=4)
    assert packed.groups == 4
    for bounds in (ends, np.array(ends), on_gpu.put(np.array(ends, np.int32))):
        for right in (b, packed):
            y = on_gpu.get(nvfp4.grouped_mm_fp4(left, right, left_sf, b_sf, bounds,
                                                on_gpu.put(alpha), out_dtype="float32"))
            for g in range(4):
                rows = slice(ends[g], ends[g + 1])
                within_bound(y[rows], a_value[rows], weights[g][3], float(alpha[g]))
            assert not y[ends[-1]:].any()


@needs_products
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_of_full_precision_with_packed_parts(on_gpu, dtype):
    x = rounded(normal(12, 21, 96), dtype)
    parts = [nvfp4.quantize(on_gpu.put(normal(13 + i, n, 96)), "mse", scope=scope)
             for i, (n, scope) in enumerate([(32, "tensor"), (48, "vector")])]
    packed = nvfp4.pack_weights(*parts)
    value = np.concatenate([on_gpu.get(q.dequantize()) for q in parts])
    bias = normal(15, 80)
    y = nvfp4.gemm(on_gpu.put(x, dtype).reshape(3, 7, 96), packed, out_dtype="float32",
                   bias=on_gpu.put(bias), alpha=0.5)
    assert tuple(y.shape) == (3, 7, 80)
    within_bound(on_gpu.get(y).reshape(21, 80), x, value, 0.5, bias=bias)
    grouped = nvfp4.pack_weights(parts[0], nvfp4.quantize(on_gpu.put(normal(16, 32, 96))), groups=2)
    other = on_gpu.get(nvfp4.quantize(on_gpu.put(normal(16, 32, 96))).dequantize())
    factors = on_gpu.put(np.array([2, 0.25], np.float32))
    z = on_gpu.get(nvfp4.gemm(on_gpu.put(x, dtype), grouped, row_ends=[4, 20], out_dtype="float32",
                              alpha=factors, bias=on_gpu.put(np.stack((bias[:32],) * 2))))
    within_bound(z[:4], x[:4], value[:32], 2, bias=bias[:32])
    within_bound(z[4:20], x[4:20], other, 0.25, bias=bias[:32])
    assert not z[20:].any()


@needs_products
def test_results_and_workspaces_that_are_given(on_gpu):
    if isinstance(on_gpu, Jax):
        pytest.skip("JAX arrays cannot be written")
    a, a_sf, _, a_value = quantized(normal(16, 33, 128))
    b, b_sf, _, b_value = quantized(normal(17, 24, 128))
    out = on_gpu.put(np.zeros((33, 24), np.float32))
    left = [on_gpu.put(v) for v in (a, a_sf)]
    right, right_sf = on_gpu.put(b), on_gpu.put(b_sf)
    packed = nvfp4.pack_weights(nvfp4.QuantizedTensor(
        right, right_sf, on_gpu.put(np.ones(1, np.float32)), (24, 128), layout="tiled_128x4"))
    plan = nvfp4.plan_gemm(packed, 33, x_dtype="nvfp4", out_dtype="float32")
    assert plan.kernel.startswith(os.environ.get("NVFP4_GEMM_ARCHITECTURE", "sm90")) and "W4A4" in repr(plan)
    space = on_gpu.put(np.zeros(plan.workspace_bytes, np.uint8))
    assert nvfp4.mm_fp4(left[0], right.T, left[1], right_sf.T, 0.5, out=out,
                        workspace=space) is out
    within_bound(on_gpu.get(out), a_value, b_value, 0.5)
    with pytest.raises(nvfp4.ShapeError, match="workspace"):
        nvfp4.mm_fp4(left[0], right.T, left[1], right_sf.T, 0.5, out=out, workspace=space[:256])
    with pytest.raises(nvfp4.ShapeError, match="workspace"):
        nvfp4.mm_fp4(left[0], right.T, left[1], right_sf.T, 0.5, out=out, workspace=space[:0])


@needs_products
def test_sides_on_two_devices_are_refused(on_gpu):
    q = nvfp4.quantize(normal(18, 16, 64))
    packed = nvfp4.pack_weights(nvfp4.quantize(on_gpu.put(normal(18, 16, 64))))
    with pytest.raises(nvfp4.UnsupportedError, match="packed for"):
        nvfp4.gemm(q, packed)
    with pytest.raises(nvfp4.UnsupportedError, match="packed for"):
        nvfp4.gemm(on_gpu.put(normal(19, 4, 64), "bfloat16"), nvfp4.pack_weights(q))
    with pytest.raises(nvfp4.InvalidValueError, match="bf16"):
        nvfp4.gemm(on_gpu.put(normal(19, 4, 64)), packed)
    with pytest.raises(nvfp4.DeviceError, match="bias"):
        nvfp4.gemm(on_gpu.put(normal(19, 4, 64), "bfloat16"), packed, bias=np.zeros(16, np.float32))


LONG = 200_000_000  # cycles of a GPU: a tenth of a second


def operands(torch):
    x, residual, w = (Torch().put(normal(30 + i, *shape), "bfloat16")
                      for i, shape in enumerate([(8, 128), (8, 128), (256, 128)]))
    b, b_sf = nvfp4.nvfp4_quantize(w, 100.0)
    scale = torch.full((1,), 0.01, device="cuda")
    made = SimpleNamespace(
        x=x, residual=residual, weight=Torch().put(normal(33, 128)), b=b, b_sf=b_sf,
        experts=torch.stack((b, b)), experts_sf=torch.stack((b_sf, b_sf)),
        bounds=torch.tensor([0, 3, 8], dtype=torch.int32, device="cuda"),
        packed=nvfp4.pack_weights(nvfp4.quantize(w, "mse")), scale=scale, inverse=1 / scale)
    torch.cuda.synchronize()
    return made


def layer(o, x, residual, **stream):
    """A layer of our functions; each result depends on x. Changes residual."""
    nvfp4.add_rmsnorm_fp4quant(x, residual, o.weight, global_scale=o.inverse, **stream)
    codes, scales = nvfp4.nvfp4_quantize(residual, o.inverse, **stream)
    return (nvfp4.mm_fp4(codes, o.b.T, scales, o.b_sf.T, o.scale, **stream),
            nvfp4.grouped_mm_fp4(codes, o.experts, scales, o.experts_sf, o.bounds, o.scale,
                                 **stream),
            nvfp4.gemm(residual, o.packed, alpha=o.scale, **stream))


@needs_products
@pytest.mark.parametrize("given", [False, True], ids=["current", "given"])
def test_work_runs_on_the_streams_of_torch(torch, given):
    o = operands(torch)
    expected = layer(o, o.x, o.residual.clone())
    late, stream = torch.zeros_like(o.x), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        late.copy_(o.x)
        if not given:
            results = layer(o, late, o.residual)
    if given:
        results = layer(o, late, o.residual, stream=stream.cuda_stream)
    stream.synchronize()
    for got, want in zip(results, expected):
        assert torch.equal(got, want)


@needs_products
def test_calls_return_before_the_gpu_has_begun(torch):
    o = operands(torch)
    layer(o, o.x, o.residual)  # what is done once
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(20 * LONG)
    layer(o, o.x, o.residual)
    done.record()
    assert not done.query()
    torch.cuda.synchronize()


@needs_products
def test_graphs_of_torch_capture_everything(torch):
    o = operands(torch)
    expected = layer(o, o.x, o.residual.clone())
    x, residual = torch.zeros_like(o.x), torch.zeros_like(o.residual)
    layer(o, x, residual)  # what is done once
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = layer(o, x, residual)
    for _ in range(2):
        x.copy_(o.x), residual.copy_(o.residual)
        graph.replay()
        for got, want in zip(results, expected):
            assert torch.equal(got, want)


@needs_products
def test_work_runs_on_the_streams_of_cupy():
    cupy = CuPy().module
    x = cupy.asarray(normal(40, 64, 128)).astype(np.float16)
    expected = nvfp4.nvfp4_quantize(x, 100.0)
    packed = nvfp4.pack_weights(nvfp4.quantize(cupy.asarray(normal(41, 64, 128))))
    product = nvfp4.gemm(x, packed)
    late = cupy.zeros_like(x)
    cupy.cuda.Device().synchronize()
    busy = cupy.ones((4096, 4096), np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(20):
            busy = busy @ busy * np.float32(1e-4)
        late[...] = x
        results = nvfp4.nvfp4_quantize(late, 100.0), nvfp4.gemm(late, packed)
    stream.synchronize()
    for got, want in zip((*results[0], results[1]), (*expected, product)):
        assert bool((got == want).all())


def operator_cases(torch):
    o = operands(torch)
    codes, scales = nvfp4.nvfp4_quantize(o.x, 100.0)
    q = nvfp4.quantize(o.x, scope="vector")
    w = nvfp4.quantize(Torch().put(normal(45, 2, 40, 128)))
    experts = torch.ops.nvfp4.pack_weights(w.codes, w.scales, w.global_scale)
    one = torch.ops.nvfp4.pack_weights(q.codes, q.scales, q.global_scale)
    yield "quantize", (o.x, "mse", None, None, "tiled_128x4", "vector")
    yield "dequantize", (q.codes, q.scales, q.global_scale, torch.bfloat16)
    yield "nvfp4_quantize", (o.x, o.inverse, 0)
    yield "e2m1_and_ufp8sf_scale_to_float", (codes, scales, o.scale)
    yield "block_scale_interleave", (torch.stack((q.scales, q.scales)),)
    yield "silu_and_mul_nvfp4_quantize", (o.x, o.inverse)
    yield "rmsnorm_fp4quant", (o.x, o.weight, o.inverse)
    yield "add_rmsnorm_fp4quant", (o.x.clone(), o.residual, o.weight, o.inverse)
    yield "mm_fp4", (codes, o.b.T, scales, o.b_sf.T, o.scale)
    yield "grouped_mm_fp4", (codes, o.experts, scales, o.experts_sf, o.bounds, o.scale)
    yield "pack_weights", (q.codes, q.scales, q.global_scale)
    yield "gemm", (o.x.reshape(2, 4, 128), one, 8, o.scale)
    yield "grouped_gemm", (o.x, experts, 40, o.bounds[1:].clone())


@needs_products
def test_operators_have_fake_kernels_on_the_gpu(torch):
    import nvfp4.torch  # noqa: F401: registers them
    cases = list(operator_cases(torch))
    assert len({name for name, _ in cases}) == 13
    for name, arguments in cases:
        torch.library.opcheck(getattr(torch.ops.nvfp4, name).default, arguments,
                              test_utils=("test_schema", "test_faketensor"))


@needs_products
@pytest.mark.parametrize("dtype", LOGICAL)
@pytest.mark.parametrize("rows", [1, 8, 40, 300])
def test_linear_with_static_input_scale_equals_gemm(torch, dtype, rows):
    import nvfp4.torch  # noqa: F401: registers linear
    packed = nvfp4.pack_weights(nvfp4.quantize(Torch().put(normal(51, 256, 544))))
    x, scale = Torch().put(normal(52, rows, 544), dtype), torch.tensor([0.011], device="cuda")
    y = torch.ops.nvfp4.linear(x, packed.data, 256, None, scale, 2)
    expected = nvfp4.gemm(nvfp4.quantize(x, "max", global_scale=scale), packed, out_dtype=dtype)
    assert y.any() and torch.equal(y, expected)


@needs_products
def test_torch_compile_and_graphs_of_operators(torch):
    import nvfp4.torch  # noqa: F401: registers them
    o = operands(torch)
    q = nvfp4.quantize(Torch().put(normal(50, 64, 256), "bfloat16"))
    packed = torch.ops.nvfp4.pack_weights(q.codes, q.scales, q.global_scale)
    ops = torch.ops.nvfp4

    def operators(x, residual):
        codes, scales = ops.add_rmsnorm_fp4quant(x, residual, o.weight, o.inverse, 1e-6, True)
        y = ops.mm_fp4(codes, o.b.T, scales.view(torch.uint8), o.b_sf.T, o.scale)
        return ops.gemm(y * 2, packed, 64) + residual[:, :1]

    expected = operators(o.x, o.residual.clone())
    assert expected.isfinite().all() and expected.any()
    compiled = torch.compile(operators, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(o.x, o.residual.clone()), expected)
    x, residual = torch.zeros_like(o.x), torch.zeros_like(o.residual)
    operators(x, residual)  # what is done once
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = operators(x, residual)
    x.copy_(o.x), residual.copy_(o.residual)
    graph.replay()
    assert torch.equal(result, expected)


def test_jax_takes_over_memory_of_the_gpu():
    on_gpu = Jax()
    q = nvfp4.quantize(on_gpu.put(normal(60, 16, 64), "bfloat16"), scale_dtype="float8_e4m3fn")
    doubled = on_gpu.module.jit(lambda s: s.astype("float32") * 2)(q.scales)
    np.testing.assert_array_equal(np.asarray(doubled), 2 * np.asarray(q.scales.astype("float32")))
    with pytest.raises(nvfp4.UnsupportedError, match="JAX"):
        nvfp4.quantize(on_gpu.put(normal(60, 16, 64)), stream=7)
