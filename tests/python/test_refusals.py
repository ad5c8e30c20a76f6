"""Arguments that cannot be taken: errors that name them, and no memory of others read or written."""

import numpy as np
import pytest

import nvfp4
from reference import normal

X, W = normal(1, 4, 64), normal(2, 32, 64)
A, A_SF = nvfp4.nvfp4_quantize(X, 100.0)
B, B_SF = nvfp4.nvfp4_quantize(W, 100.0)


def frozen(x):
    x = np.array(x)
    x.flags.writeable = False
    return x


def test_rows_backwards_are_refused_and_touch_nothing():
    memory = np.zeros((12, 64), np.float32)
    q = nvfp4.quantize(X)
    for columns in (64, 1):
        backwards = memory[4:8, :columns][::-1]
        with pytest.raises(nvfp4.ShapeError, match="must not be negative"):
            nvfp4.amax(backwards)
    with pytest.raises(nvfp4.ShapeError, match="must not be negative"):
        nvfp4.quantize(memory[4:8][::-1])
    with pytest.raises(nvfp4.ShapeError, match="out has .* must not be negative"):
        nvfp4.dequantize(q, out=memory[4:8][::-1])
    with pytest.raises(nvfp4.ShapeError, match="out has .* must not be negative"):
        nvfp4.gemm(X, nvfp4.pack_weights(nvfp4.quantize(W)), out=memory[4:8, :32][::-1])
    assert not memory.any()


def test_memory_that_cannot_be_written():
    q, weight = nvfp4.quantize(X), np.ones(64, np.float32)
    still = nvfp4.QuantizedTensor(frozen(q.codes), q.scales, q.global_scale, q.shape)
    for name, call in (
            ("out", lambda: nvfp4.dequantize(q, out=frozen(X))),
            ("codes", lambda: nvfp4.quantize(X, out=still)),
            ("codes", lambda: nvfp4.rmsnorm_fp4quant(X, weight, frozen(q.codes))),
            ("residual", lambda: nvfp4.add_rmsnorm_fp4quant(X, frozen(X), weight))):
        with pytest.raises(TypeError, match=f"{name} is read-only"):
            call()
    np.testing.assert_array_equal(nvfp4.dequantize(still), nvfp4.dequantize(q))


def in_one_buffer(codes, scales):
    """A result for X whose codes and scales begin at these bytes of the same memory."""
    memory = np.zeros(1024, np.uint8)
    return nvfp4.QuantizedTensor(memory[codes:codes + 128].reshape(4, 32), memory[scales:scales + 16].reshape(4, 4),
                                 memory[1020:].view(np.float32), (4, 64))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_outputs_that_overlap_are_refused(framework):
    arrays = pytest.importorskip(framework)
    given = np.asarray if framework == "numpy" else arrays.from_numpy
    memory = np.concatenate([X.reshape(-1), np.zeros(512, np.float32)])
    before, q, w = memory.copy(), nvfp4.quantize(given(X.copy())), nvfp4.pack_weights(nvfp4.quantize(W))
    x, part, weight = given(memory[:256].reshape(4, 64)), given(memory[128:384].reshape(4, 64)), given(np.ones(64, np.float32))
    if framework == "torch":
        w = nvfp4.pack_weights(nvfp4.quantize(given(W)))
    of_x = nvfp4.QuantizedTensor(given(memory[:32].view(np.uint8).reshape(4, 32)), q.scales, q.global_scale, q.shape)
    half = nvfp4.QuantizedTensor(q.codes, q.scales, given(memory[:1]), q.shape)
    for name, call in (
            ("out.codes shares memory with x", lambda: nvfp4.quantize(x, out=of_x)),
            ("out shares memory with q.global_scale", lambda: nvfp4.dequantize(half, out=x)),
            ("out shares memory with x", lambda: nvfp4.gemm(x, w, out=part[:, :32])),
            ("residual shares memory with input", lambda: nvfp4.add_rmsnorm_fp4quant(x, part, weight)),
            ("residual shares memory with input", lambda: nvfp4.add_rmsnorm_fp4quant(x, x, weight)),
            ("y_fp4 shares memory with input", lambda: nvfp4.rmsnorm_fp4quant(x, weight, of_x.codes))):
        with pytest.raises(nvfp4.InvalidValueError, match=name):
            call()
    np.testing.assert_array_equal(memory, before)


def test_outputs_beside_each_other_are_taken():
    expected = nvfp4.quantize(X)
    with pytest.raises(nvfp4.InvalidValueError, match="out.codes shares memory with out.scales"):
        nvfp4.quantize(X, out=in_one_buffer(0, 127))
    q = nvfp4.quantize(X, out=in_one_buffer(0, 128))
    np.testing.assert_array_equal(q.codes, expected.codes)
    columns = np.zeros((4, 128), np.float32)  # rows of x and of the result alternate
    columns[:, :64] = X
    y = nvfp4.gemm(columns[:, :64], nvfp4.pack_weights(nvfp4.quantize(W)), out=columns[:, 64:96])
    np.testing.assert_array_equal(y, nvfp4.gemm(X, nvfp4.pack_weights(nvfp4.quantize(W))))
    assert nvfp4.dequantize(nvfp4.quantize(X[:0]), out=columns[:0, :64]).shape == (0, 64)


def test_jax_arrays_are_not_written():
    jnp = pytest.importorskip("jax.numpy")
    zeros = jnp.zeros((4, 64))
    with pytest.raises(nvfp4.UnsupportedError, match="out is a JAX array"):
        nvfp4.dequantize(nvfp4.quantize(X), out=zeros)
    with pytest.raises(nvfp4.UnsupportedError, match="is a JAX array"):
        nvfp4.rmsnorm_fp4quant(X, np.ones(64, np.float32), jnp.zeros((4, 32), jnp.uint8))
    assert not zeros.any()


@pytest.mark.parametrize("dtype", [">f4", ">f2"])
def test_another_byte_order(dtype):
    with pytest.raises(TypeError, match=f"x.dtype = '{dtype}', must be"):
        nvfp4.quantize(X.astype(dtype))


def test_tensors_without_memory_as_we_read_it():
    torch = pytest.importorskip("torch")
    for x, rule in ((torch.zeros(4, 64, device="meta"), "x.device = meta, must be cpu or cuda"),
                    (torch.zeros(4, 64).to_sparse(), "x.layout = torch.sparse_coo, must be")):
        with pytest.raises(nvfp4.UnsupportedError, match=rule):
            nvfp4.quantize(x)


def test_no_global_scale_where_one_must_be_given():
    for name, call in (("a_global_sf", lambda: nvfp4.nvfp4_quantize(X, None)),
                       ("global_scale", lambda: nvfp4.silu_and_mul_nvfp4_quantize(X, None)),
                       ("alpha", lambda: nvfp4.gemm(X, nvfp4.pack_weights(nvfp4.quantize(W)),
                                                    alpha=None))):
        with pytest.raises(TypeError, match=f"{name} = None, must be"):
            call()
    with pytest.raises(TypeError, match="'much', must be a number"):
        nvfp4.quantize(X, global_scale="much")
    with pytest.raises(TypeError, match="residual = None"):
        nvfp4.add_rmsnorm_fp4quant(X, None, np.ones(64, np.float32))


def test_weights_scales_lie_as_they_came_or_transposed():
    given = [nvfp4.mm_fp4(A, B.T, A_SF, sf, out_dtype="float32")
             for sf in (B_SF.T, B_SF, B_SF.reshape(-1))]
    np.testing.assert_array_equal(given[0], given[1])
    np.testing.assert_array_equal(given[0], given[2])
    with pytest.raises(nvfp4.ShapeError, match=r"b_descale has shape \[64, 8\], must be \[128, 4\]"):
        nvfp4.mm_fp4(A, B.T, A_SF, B_SF.reshape(64, 8))


def test_the_operator_transposes_nothing_by_itself():
    torch = pytest.importorskip("torch")
    import nvfp4.torch  # noqa: F401: registers the operators
    a, a_sf, b, b_sf = map(torch.from_numpy, (A, A_SF, B, B_SF))
    operator, one = torch.ops.nvfp4.mm_fp4, torch.ones(1)
    good = operator(a, b.T, a_sf, b_sf.T, one)
    with pytest.raises(nvfp4.ShapeError, match="not contiguous"):
        operator(a, b.T, a_sf, b_sf, one)
    assert good.isfinite().all()


@pytest.mark.parametrize("rule, call", [
    ("a has shape", lambda: nvfp4.mm_fp4(A[0], B.T, A_SF, B_SF)),
    ("b has shape", lambda: nvfp4.mm_fp4(A, B[0], A_SF, B_SF)),
    ("b_descale has shape", lambda: nvfp4.mm_fp4(A, B.T, A_SF, B_SF[:64])),
    (r"b has shape \[32, 32\]", lambda: nvfp4.grouped_mm_fp4(A, B, A_SF, B_SF, [0, 2, 4])),
    ("b_descale has 511", lambda: nvfp4.grouped_mm_fp4(
        A, np.stack((B, B)), A_SF, B_SF.reshape(-1)[:-1], [0, 2, 4])),
    ("e2m1_tensor has no dim", lambda: nvfp4.e2m1_and_ufp8sf_scale_to_float(A[0, 0], A_SF)),
    (r"shape \[-4, 64\]", lambda: nvfp4.dequantize(
        nvfp4.QuantizedTensor(A, A_SF, np.ones(1, np.float32), (-4, 64)))),
])
def test_shapes(rule, call):
    with pytest.raises(nvfp4.ShapeError, match=rule):
        call()


@pytest.mark.parametrize("rule, call", [
    ("q is a ndarray, must be a QuantizedTensor", lambda: nvfp4.dequantize(X)),
    ("out is a ndarray, must be", lambda: nvfp4.quantize(X, out=X)),
    ("w is a QuantizedTensor, must be what pack_weights",
     lambda: nvfp4.gemm(X, nvfp4.quantize(W))),
    ("w is a QuantizedTensor, must be what pack_weights",
     lambda: nvfp4.plan_gemm(nvfp4.quantize(W), 4)),
    ("row_ends.dtype = float64, must be integers",
     lambda: nvfp4.gemm(X, nvfp4.pack_weights(nvfp4.quantize(W)), row_ends=[3.5])),
    ("m_indptr.dtype", lambda: nvfp4.grouped_mm_fp4(A, B[None], A_SF, B_SF[None], [0, 3.5])),
])
def test_types(rule, call):
    with pytest.raises(TypeError, match=rule):
        call()


def test_names():
    with pytest.raises(nvfp4.InvalidValueError, match="sfLayout = 7, must be one of"):
        nvfp4.nvfp4_quantize(X, 1.0, 7)
    with pytest.raises(nvfp4.InvalidValueError, match="scale_dtype = float32, must be"):
        nvfp4.quantize(X, scale_dtype="float32")


def test_scales_and_weights_that_only_export_memory():
    q = nvfp4.quantize(X)
    np.testing.assert_array_equal(nvfp4.block_scale_interleave(memoryview(q.scales)),
                                  nvfp4.block_scale_interleave(q.scales))
    ones = np.ones(64, np.float32)
    np.testing.assert_array_equal(nvfp4.rmsnorm_fp4quant(X, memoryview(ones))[0],
                                  nvfp4.rmsnorm_fp4quant(X, ones)[0])


class OnAGpu:
    """An array of which NumPy sees nothing until it is brought to the host."""
    __cuda_array_interface__ = {}

    def get(self):
        return np.array([0, 2, 4], np.int32)


class OfJax(OnAGpu):
    get = None

    def __array__(self, dtype=None, copy=None):
        return np.array([0, 2, 4], np.int32)


def test_integers_on_a_gpu_come_to_the_host():
    for given in (OnAGpu(), OfJax(), [0, 2, 4]):
        assert nvfp4._arrays.host_integers("m_indptr", given) == [0, 2, 4]
    with pytest.raises(TypeError, match="m_indptr.*integers"):
        nvfp4._arrays.host_integers("m_indptr", [0.5])
