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
@pytest.mark.parametrize("quantizer", nvfp4.quantizer_names())
def test_torch_on_the_cpu(dtype, quantizer):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(normal(1, 9, 64)).to(getattr(torch, dtype))
    same = nvfp4.quantize(x.float().numpy(), quantizer)
    q = nvfp4.quantize(x, quantizer)
    assert isinstance(q.codes, torch.Tensor) and q.scales.dtype == torch.uint8
    np.testing.assert_array_equal(q.codes.numpy(), same.codes)
    np.testing.assert_array_equal(q.scales.numpy(), same.scales)
    np.testing.assert_array_equal(q.global_scale.numpy(), same.global_scale)
    fp8 = nvfp4.quantize(x, quantizer, scale_dtype=torch.float8_e4m3fn)
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


def test_packed_types_of_torch_are_read_as_they_are():
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


def test_arrays_of_a_gpu_are_exported_as_often_as_they_are_asked_for():
    torch = pytest.importorskip("torch")
    from nvfp4 import _arrays, _core
    x, residual = (torch.from_numpy(normal(s, 5, 64)) for s in (6, 7))
    weight = torch.ones(64)
    q, same = nvfp4.quantize(x), nvfp4.quantize(x)
    expected = residual.clone()
    nvfp4.add_rmsnorm_fp4quant(x, expected, weight, same.codes, same.scales, 1.0)
    exported = _arrays.Exported(residual)  # as the arrays of a GPU are
    _core.rms_norm_quantize_into(
        _arrays.Exported(x), _arrays.Exported(weight), q.span(),
        _core.Options(globals=_arrays.Exported(torch.ones(1))), 1e-6, "f32", exported, exported)
    assert torch.equal(residual, expected) and torch.equal(q.codes, same.codes)
    packed = nvfp4.pack_weights(nvfp4.quantize(torch.from_numpy(normal(8, 16, 64))))
    y = torch.empty(5, 16)
    # y is imported, then 0.3 is not taken without rounding it to FP32, then all is tried anew.
    _core.gemm_into(_arrays.Exported(x), packed, _arrays.Exported(y), 0.3)
    assert torch.equal(y, nvfp4.gemm(x, packed, alpha=0.3))


def test_torch_products():
    torch = pytest.importorskip("torch")
    a = torch.from_numpy(normal(3, 48, 128)).bfloat16()
    b = torch.from_numpy(normal(4, 256, 128)).bfloat16()
    a_global, b_global = (448 * 6 / t.float().abs().nan_to_num().max() for t in (a, b))
    a_fp4, a_sf = nvfp4.nvfp4_quantize(a, a_global)
    b_fp4, b_sf = nvfp4.nvfp4_quantize(b, b_global)
    out = nvfp4.mm_fp4(a_fp4, b_fp4.T, a_sf, b_sf.T, 1.0 / (a_global * b_global), torch.bfloat16)
    assert out.dtype == torch.bfloat16 and out.shape == (48, 256)
    exact = (nvfp4.e2m1_and_ufp8sf_scale_to_float(a_fp4, a_sf, 1 / a_global).double()
             @ nvfp4.e2m1_and_ufp8sf_scale_to_float(b_fp4, b_sf, 1 / b_global).double().T)
    assert (out.double() - exact).norm() <= 2.0**-8 * exact.norm()


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
    """Where the data of an array is that __dlpack__ handed out."""
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


def test_weights_for_tensor_cores_are_packed_anywhere():
    """On the CPU they can be made, and not used."""
    q = nvfp4.quantize(normal(6, 70, 144), scope="vector")
    w = nvfp4.FragmentWeights(np.empty(2 * 2 * 3 * 2304, np.uint8), np.empty(140, np.float32), 70,
                              144, groups=2, scope="vector")
    assert (len(w), w.nbytes) == (2, 2 * 2 * 3 * 2304)
    for group in range(2):
        w._weights.pack(q.view(), group)
    assert w.tiles[:w.nbytes // 2].any()
    np.testing.assert_array_equal(*np.split(w.tiles, 2))
    np.testing.assert_array_equal(w.global_scale, np.tile(q.global_scale, 2))
    with pytest.raises(nvfp4.UnsupportedError, match="packed for a GPU"):
        nvfp4.gemm(q, w)
    with pytest.raises(nvfp4.ShapeError, match="tiles has"):
        nvfp4.FragmentWeights(w.tiles[:100], w.global_scale, 70, 144, 2, "vector")
    with pytest.raises(nvfp4.ShapeError, match="globals has"):
        nvfp4.FragmentWeights(w.tiles, w.global_scale, 70, 144, 2)


def test_products_on_a_gpu_reach_the_library_with_what_it_wants(monkeypatch):
    """As if tensors of the CPU lay on a GPU: all goes well up to the library, which knows better."""
    torch = pytest.importorskip("torch")
    import nvfp4.torch  # noqa: F401: registers the operators
    from nvfp4 import _arrays
    x, w = (torch.from_numpy(normal(9 + n, n, 128)).bfloat16() for n in (8, 72))
    (a, a_sf), (b, b_sf) = nvfp4.nvfp4_quantize(x, 100.0), nvfp4.nvfp4_quantize(w, 100.0)
    q, few = nvfp4.quantize(w, "mse"), nvfp4.quantize(w[:40], scope="vector", layout="tiled_128x4")
    alpha, bounds = torch.ones(1), torch.tensor([0, 3, 8], dtype=torch.int32)
    twice, twice_sf = torch.stack((b, b)), torch.stack((b_sf, b_sf))
    monkeypatch.setattr(_arrays.Torch, "is_cuda", lambda self, x: True)
    packed, experts = nvfp4.pack_weights(q, few), nvfp4.pack_groups([q, q])
    assert (packed.rows, packed.scope, len(experts)) == (112, "vector", 2)
    tiles, factors = torch.ops.nvfp4.pack_fragments(
        torch.stack((q.codes, q.codes)), torch.stack((q.scales, q.scales)), q.global_scale)
    assert torch.equal(tiles, experts.tiles) and torch.equal(factors, experts.global_scale)
    space = torch.empty(nvfp4.gemm_workspace_bytes(8, 128), dtype=torch.uint8)
    for product in (
            lambda: nvfp4.mm_fp4(a, b.T, a_sf, b_sf.T, alpha),
            lambda: nvfp4.mm_fp4(a, packed, a_sf, None, 0.5, "float32", workspace=space),
            lambda: nvfp4.gemm(x.reshape(2, 4, 128), packed, bias=torch.zeros(112), alpha=alpha),
            lambda: nvfp4.grouped_gemm(x, experts, [3, 8], alpha=0.5, bias=torch.zeros(2, 72)),
            lambda: nvfp4.grouped_mm_fp4(a, twice, a_sf, twice_sf, bounds, alpha),
            lambda: nvfp4.grouped_mm_fp4(a, experts, a_sf, None, [0, 3, 8], [1.0, 2.0]),
            lambda: torch.ops.nvfp4.fragment_gemm(x, packed.tiles, packed.global_scale, 112, alpha),
            lambda: torch.ops.nvfp4.fragment_grouped_gemm(x, tiles, factors, 72, bounds[1:])):
        with pytest.raises(nvfp4.UnsupportedError, match="on a GPU only"):
            product()
    with pytest.raises(nvfp4.ShapeError, match="must have 1 or 2"):
        nvfp4.grouped_gemm(x, experts, [3, 8], alpha=torch.ones(3))
