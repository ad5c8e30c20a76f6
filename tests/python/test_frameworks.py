"""PyTorch and JAX arrays give what NumPy arrays give, without copies."""

import numpy as np
import pytest

import nvfp4
from reference import divisor, normal


def bits(x):
    return np.asarray(x).view(np.uint8)


def numpy_of(t):
    import torch
    if t.dtype in (torch.bfloat16, torch.float8_e4m3fn):
        t = t.view(torch.uint8)
    return t.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("method", nvfp4.method_names())
def test_torch_on_the_cpu(dtype, method):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(normal(1, 9, 64)).to(getattr(torch, dtype))
    same = nvfp4.quantize(x.float().numpy(), method)
    q = nvfp4.quantize(x, method)
    assert isinstance(q.codes, torch.Tensor) and q.scales.dtype == torch.uint8
    np.testing.assert_array_equal(q.codes.numpy(), same.codes)
    np.testing.assert_array_equal(q.scales.numpy(), same.scales)
    np.testing.assert_array_equal(q.global_scale.numpy(), same.global_scale)
    fp8 = nvfp4.quantize(x, method, scale_dtype=torch.float8_e4m3fn)
    assert fp8.scales.dtype == torch.float8_e4m3fn
    np.testing.assert_array_equal(numpy_of(fp8.scales), same.scales)
    y = nvfp4.dequantize(fp8, torch.bfloat16)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, torch.from_numpy(nvfp4.dequantize(same)).bfloat16())


def test_torch_parameters_views_and_devices_of_scales():
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.from_numpy(normal(2, 16, 64)))
    global_sf = 448 * 6 / weight.detach().abs().max()
    q, sf = nvfp4.nvfp4_quantize(weight, global_sf)
    same = nvfp4.nvfp4_quantize(weight.detach().numpy(), divisor(weight.detach().numpy()))
    np.testing.assert_array_equal(q.numpy(), same[0])
    np.testing.assert_array_equal(sf.numpy(), same[1])
    y = nvfp4.e2m1_and_ufp8sf_scale_to_float(q, sf, 1 / global_sf)
    assert y.dtype == torch.float32 and y.shape == (16, 64)
    np.testing.assert_array_equal(nvfp4.quantize(weight[::2, 16:48]).codes.numpy(),
                                  nvfp4.quantize(weight[::2, 16:48].contiguous()).codes.numpy())


def test_whatever_exports_dlpack():
    class Foreign:
        """No array of any framework."""

        def __init__(self, x):
            self._x = x

        def __dlpack__(self, **options):
            return self._x.__dlpack__(**options)

        def __dlpack_device__(self):
            return self._x.__dlpack_device__()

    x = normal(7, 6, 64)
    q, same = nvfp4.quantize(Foreign(x), "mse"), nvfp4.quantize(x, "mse")
    np.testing.assert_array_equal(q.codes, same.codes)
    foreign = nvfp4.QuantizedTensor(Foreign(q.codes), Foreign(q.scales), Foreign(q.global_scale),
                                    (6, 64))
    np.testing.assert_array_equal(nvfp4.dequantize(foreign), nvfp4.dequantize(same))


def test_packed_torch_types_are_read():
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no float4_e2m1fn_x2")
    q = nvfp4.quantize(torch.from_numpy(normal(8, 6, 64)), scale_dtype="float8_e4m3fn")
    same = nvfp4.dequantize(q)
    q.codes = q.codes.view(torch.float4_e2m1fn_x2)
    assert torch.equal(nvfp4.dequantize(q), same)


def test_torch_memory_is_written_in_place():
    torch = pytest.importorskip("torch")
    x, residual = torch.ones(2, 32), torch.full((2, 32), 2.0)
    nvfp4.add_rmsnorm_fp4quant(x, residual, torch.ones(32))
    assert torch.equal(residual, torch.full((2, 32), 3.0))
    out = torch.empty(2, 32, dtype=torch.bfloat16)
    q = nvfp4.quantize(x)
    assert nvfp4.dequantize(q, out=out) is out and torch.equal(out, torch.ones_like(out))


def test_gpu_arrays_are_exported_repeatedly():
    torch = pytest.importorskip("torch")
    from nvfp4 import _arrays, _core
    x, residual = (torch.from_numpy(normal(s, 5, 64)) for s in (6, 7))
    weight = torch.ones(64)
    q, same = nvfp4.quantize(x), nvfp4.quantize(x)
    expected = residual.clone()
    nvfp4.add_rmsnorm_fp4quant(x, expected, weight, same.codes, same.scales, 1.0)
    exported = _arrays.Exported(residual)  # as the arrays of a GPU are
    _core.rms_norm_quantize_into(
        _arrays.Exported(x), _arrays.Exported(weight), q._operand(written=True),
        _core.Options(globals=_arrays.Exported(torch.ones(1))), 1e-6, "f32", exported, exported)
    assert torch.equal(residual, expected) and torch.equal(q.codes, same.codes)
    packed = nvfp4.pack_weights(nvfp4.quantize(torch.from_numpy(normal(8, 16, 64))))
    y = torch.empty(5, 16)
    # y is imported, then 0.3 is not taken without rounding it to FP32, then all is tried anew.
    plan = nvfp4.plan_gemm(packed, 5, x_dtype=x.dtype, out_dtype="float32")
    _core.gemm(plan, _arrays.Exported(x), packed._weights, _arrays.Exported(y), 0.3)
    assert torch.equal(y, nvfp4.gemm(x, packed, alpha=0.3))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_jax_on_the_cpu(dtype):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    x = jax.device_put(jnp.asarray(normal(5, 9, 64), dtype), jax.devices("cpu")[0])
    same = nvfp4.quantize(np.asarray(x.astype("float32")))
    for scale_dtype in ("uint8", "float8_e4m3fn"):
        q = nvfp4.quantize(x, scale_dtype=scale_dtype)
        assert isinstance(q.codes, jax.Array) and q.scales.dtype == scale_dtype
        np.testing.assert_array_equal(np.asarray(q.codes), same.codes)
        np.testing.assert_array_equal(bits(q.scales), same.scales)
        y = nvfp4.dequantize(q)
        assert isinstance(y, jax.Array)
        np.testing.assert_array_equal(np.asarray(y), nvfp4.dequantize(same))
        assert nvfp4.dequantize(q, "bfloat16").dtype == jnp.bfloat16
    with pytest.raises(nvfp4.UnsupportedError, match="JAX"):
        nvfp4.add_rmsnorm_fp4quant(x, x, jnp.ones(64))
    interleaved = nvfp4.block_scale_interleave(q.scales)
    np.testing.assert_array_equal(bits(interleaved), nvfp4.block_scale_interleave(same.scales))


def address_in(capsule):
    """Returns the address of the data of an array in the capsule of __dlpack__."""
    import ctypes
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p.from_address(get(capsule, b"dltensor")).value


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16", "bfloat16", "float8_e4m3fn"])
def test_jax_arrays_are_not_copied_in_either_direction(dtype):
    jax = pytest.importorskip("jax")
    from nvfp4 import _arrays
    like = jax.device_put(jax.numpy.ones(1), jax.devices("cpu")[0])
    memory = _arrays.Jax().empty((64, 64), dtype, like)
    written = address_in(memory.array.__dlpack__())
    taken = _arrays.Jax().finish(memory)
    assert isinstance(taken, jax.Array) and taken.dtype == dtype and taken.shape == (64, 64)
    assert taken.unsafe_buffer_pointer() == written
    operand, name = _arrays.Jax().view(taken)
    assert name == dtype and address_in(operand.__dlpack__()) == written


def test_packed_weights_are_made_again_of_their_bytes():
    q, r = (nvfp4.quantize(normal(6 + i, 70, 144), scope=scope)
            for i, scope in enumerate(("tensor", "vector")))
    for parts, scope in (((q, q), "tensor"), ((q, r), "vector")):
        w = nvfp4.pack_weights(*parts, groups=2)
        assert (w.groups, w.rows, w.cols, w.scope) == (2, 70, 144, scope)
        again = nvfp4.PackedWeights(w.data.copy(), 70, 144, groups=2)
        assert again.scope == scope and again.nbytes == w.nbytes == 2 * 80 * 144 // 16 * 9
        for group, part in enumerate(parts):
            back = nvfp4.unpack_weights(again, group)
            np.testing.assert_array_equal(back.codes, part.codes)
            np.testing.assert_array_equal(back.scales, part.scales)
            np.testing.assert_array_equal(
                np.broadcast_to(back.global_scale, 70), np.broadcast_to(part.global_scale, 70))
    with pytest.raises(nvfp4.ShapeError, match="memory has"):
        nvfp4.PackedWeights(w.data[:-4].copy(), 70, 144, 2, "vector")
    with pytest.raises(nvfp4.ShapeError, match="divide the 140 outputs"):
        nvfp4.pack_weights(q, q, groups=3)


def test_a_plan_says_how_a_product_is_done():
    x, w = normal(7, 5, 64), nvfp4.pack_weights(nvfp4.quantize(normal(8, 32, 64)), gate_up=0)
    plan = nvfp4.plan_gemm(w, 8, x_dtype="float32", out_dtype="float32", epilogue="swiglu",
                           backend="reference")
    assert (plan.kernel, plan.rows, len(plan.tile)) == ("reference_w4a16", 8, 4)
    assert "W4A16 dense [8, 64] x [32, 64], x f32, SwiGLU, out f32 on cpu" in repr(plan)
    assert plan.workspace_bytes >= 8 * 32 * 4
    space, out = np.zeros(plan.workspace_bytes, np.uint8), np.empty((5, 16), np.float32)
    assert nvfp4.gemm(x, w, plan=plan, epilogue="swiglu", out=out, workspace=space) is out
    plain = nvfp4.gemm(x, nvfp4.pack_weights(nvfp4.unpack_weights(w)), backend="reference")
    gate, up = plain[:, :16], plain[:, 16:]
    np.testing.assert_allclose(out, gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-5)
    with pytest.raises(nvfp4.ShapeError, match="at most m = 8"):
        nvfp4.gemm(normal(7, 9, 64), w, plan=plan, epilogue="swiglu")
    with pytest.raises(nvfp4.InvalidValueError, match="kernel = 'reference_w4a4' has another arithmetic"):
        nvfp4.plan_gemm(w, 8, kernel="reference_w4a4")


def test_gpu_gemm_reaches_the_library(monkeypatch):
    """Tensors of the CPU pretend to be on a GPU. The library rejects them."""
    torch = pytest.importorskip("torch")
    import nvfp4.torch  # noqa: F401: registers the operators
    from nvfp4 import _arrays
    x, w = (torch.from_numpy(normal(9 + n, n, 128)).bfloat16() for n in (8, 72))
    (a, a_sf), (b, b_sf) = nvfp4.nvfp4_quantize(x, 100.0), nvfp4.nvfp4_quantize(w, 100.0)
    q, few = nvfp4.quantize(w, "mse"), nvfp4.quantize(w[:40], scope="vector", layout="tiled_128x4")
    alpha, bounds = torch.ones(1), torch.tensor([0, 3, 8], dtype=torch.int32)
    twice, twice_sf = torch.stack((b, b)), torch.stack((b_sf, b_sf))
    monkeypatch.setattr(_arrays.Torch, "is_cuda", lambda self, x: True)
    for pack in (lambda: nvfp4.pack_weights(q, few), lambda: nvfp4.pack_weights(q, q, groups=2),
                 lambda: torch.ops.nvfp4.pack_weights(q.codes, q.scales, q.global_scale),
                 lambda: nvfp4.mm_fp4(a, b.T, a_sf, b_sf.T, alpha),
                 lambda: nvfp4.grouped_mm_fp4(a, twice, a_sf, twice_sf, bounds, alpha)):
        with pytest.raises(nvfp4.ShapeError, match="memory has"):  # as much as a GPU needs
            pack()


@pytest.mark.parametrize("rows, blocks", [(1, 1), (31, 5), (128, 4), (129, 8), (300, 33), (2048, 64)])
def test_interleaved_scales_equal_those_of_pytorch(rows, blocks):
    torch = pytest.importorskip("torch")
    pytest.importorskip("expecttest")  # that of PyTorch's own tests, which have to_blocked()
    from torch.testing._internal.common_quantized import to_blocked
    scales = torch.from_numpy(np.random.default_rng(rows).integers(1, 127, (rows, blocks), np.uint8))
    ours = nvfp4.block_scale_interleave(scales.numpy())
    np.testing.assert_array_equal(ours.reshape(-1), to_blocked(scales).numpy())
