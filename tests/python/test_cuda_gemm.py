"""Every form and epilogue of a product, and tuning, with arrays of PyTorch, CuPy and JAX on a GPU. Skipped
without one."""

import numpy as np
import pytest

import nvfp4
import reference
from gemm_forms import FORMS, K, N, ROWS, arguments, left, moved, name_of, weights
from gpu_arrays import needs_products, on_gpu, on_some_gpu, rounded, within_bound
from reference import normal

pytestmark = on_some_gpu


def near(y, exact):
    assert y.shape == exact.shape
    np.testing.assert_allclose(y, exact, rtol=1e-3, atol=1e-3 * np.abs(exact).max())


def left_on_gpu(on_gpu, form, scheme):
    """left() there: bfloat16 for W4A16."""
    x, value = left(form, scheme)
    if scheme == "w4a4":
        return moved(x, on_gpu.put), value
    return on_gpu.put(rounded(x, "bfloat16"), "bfloat16"), rounded(x, "bfloat16")


def there(on_gpu, form):
    """arguments(), those of gemm() on the GPU."""
    given, which = arguments(form)
    return {name: on_gpu.put(np.asarray(v, np.int32)) for name, v in given.items()}, which


@needs_products
@pytest.mark.parametrize("scheme", ["w4a16", "w4a4"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_product(on_gpu, form, scheme):
    packed, w = weights(form, put=on_gpu.put)
    x, value = left_on_gpu(on_gpu, form, scheme)
    given, which = there(on_gpu, form)
    bias, alpha = normal(31, len(w), N), np.linspace(0.5, 2, len(w)).astype(np.float32)
    factors = {"alpha": on_gpu.put(alpha), "bias": on_gpu.put(bias)}
    y = on_gpu.get(nvfp4.gemm(x, packed, out_dtype="float32", **factors, **given))
    near(y, reference.product(value, w, name_of(form), alpha, bias, **which))
    plan = nvfp4.plan_gemm(
        packed, 2 * len(y), x_dtype="nvfp4" if scheme == "w4a4" else "bfloat16",
        out_dtype="float32", form=name_of(form), shared_x="shared" in form,
        top_k=2 if name_of(form) == "routed" else 0)
    near(on_gpu.get(nvfp4.gemm(x, packed, plan=plan, **factors, **given)), y)
    forced = nvfp4.gemm(x, packed, kernel=plan.kernel, out_dtype="float32", **factors, **given)
    near(on_gpu.get(forced), y)


@needs_products
def test_rows_whose_id_names_no_matrix_are_zero(on_gpu):
    packed, w = weights("routed", put=on_gpu.put)
    ids = np.array([[0, 9], [-1, 2]], np.int32)
    x = rounded(normal(37, 2, K), "bfloat16")
    y = on_gpu.get(nvfp4.gemm(on_gpu.put(x, "bfloat16"), packed, expert_ids=on_gpu.put(ids),
                              out_dtype="float32"))
    assert not y[1].any() and not y[2].any()
    near(y[[0, 3]], np.stack([w[0] @ x[0], w[2] @ x[1]]))


@needs_products
@pytest.mark.parametrize("interleave", [0, 8])
@pytest.mark.parametrize("form", [f for f in FORMS if not f.startswith("every_group")])
def test_swiglu_and_its_quantization(on_gpu, form, interleave):
    packed, w = weights(form, interleave, on_gpu.put)
    x, value = left_on_gpu(on_gpu, form, "w4a16")
    given, which = there(on_gpu, form)
    options = {"bias": on_gpu.put(normal(32, len(w), N)), "swiglu_limit": 3.0, **given}
    y = on_gpu.get(nvfp4.gemm(x, packed, epilogue="swiglu", out_dtype="float32", **options))
    sums = reference.product(value, w, name_of(form), 1, normal(32, len(w), N), **which)
    near(y, reference.swiglu(sums, interleave, 3.0))
    scale = np.float32(0.01)
    for given_scale, scope in ((float(scale), "tensor"),
                               (on_gpu.put(np.full(len(y), scale)), "vector")):
        q = nvfp4.gemm(x, packed, epilogue="swiglu_quantize", out_global_scale=given_scale,
                       out_scope=scope, **options)
        assert q.shape == y.shape and q.scope == scope
        codes, scales = reference.quantize_max(y, scale)
        # The sums of another kernel may round otherwise.
        assert np.mean(on_gpu.get(q.codes) == codes) > 0.98
        assert np.mean(on_gpu.get(q.scales) == scales) > 0.98
        written = np.abs(y).max(1) > 0
        assert np.all(on_gpu.get(q.global_scale)[written if scope == "vector" else [0]] == scale)
    with pytest.raises(nvfp4.InvalidValueError, match="out_global_scale = None"):
        nvfp4.gemm(x, packed, epilogue="swiglu_quantize", **options)


@needs_products
def test_autotune_measures_once(on_gpu, tmp_path, monkeypatch):
    file = tmp_path / "cache" / "gemm.txt"
    monkeypatch.setenv("NVFP4_TUNE_CACHE", str(file))
    packed, w = weights("dense", put=on_gpu.put)
    rows = ROWS + ("torch", "cupy", "jax").index(type(on_gpu).__name__.lower())  # plans are kept
    before = repr(nvfp4.plan_gemm(packed, rows, out_dtype="float32"))
    plan = nvfp4.plan_gemm(packed, rows, out_dtype="float32", autotune=True)
    assert "tuned now" in repr(plan) and file.exists()
    stamp = file.stat().st_mtime_ns
    assert nvfp4.plan_gemm(packed, rows, out_dtype="float32", autotune=True).kernel == plan.kernel
    assert file.stat().st_mtime_ns == stamp
    assert repr(nvfp4.plan_gemm(packed, rows, out_dtype="float32")) == before
    x = rounded(normal(38, rows, K), "bfloat16")
    y = nvfp4.gemm(on_gpu.put(x, "bfloat16"), packed, plan=plan)
    within_bound(on_gpu.get(y), x, w[0], 1)
