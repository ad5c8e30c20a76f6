"""Every form and epilogue of gemm() and plan_gemm() on the CPU, against plain NumPy."""

import numpy as np
import pytest

import nvfp4
import reference
from gemm_forms import FORMS, GROUPS, K, N, ROWS, arguments, left, name_of, weights
from reference import normal

def close(y, exact):
    assert y.shape == exact.shape
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize("scheme", ["w4a16", "w4a4"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_its_product(form, scheme):
    name = name_of(form)
    packed, w = weights(form)
    x, value = left(form, scheme)
    given, which = arguments(form)
    bias = normal(31, len(w), N)
    alpha = np.linspace(0.5, 2, len(w)).astype(np.float32)
    y = nvfp4.gemm(x, packed, alpha=alpha, bias=bias, out_dtype="float32", **given)
    exact = reference.product(value, w, name, alpha, bias, **which)
    close(y, exact)
    with pytest.raises(AssertionError):
        close(y, reference.product(value, w[::-1] if len(w) > 1 else 2 * w, name, alpha, bias, **which))
    # A plan that is made before, for more rows, and a result that is given.
    plan = nvfp4.plan_gemm(
        packed, 2 * len(exact), x_dtype="nvfp4" if scheme == "w4a4" else "float32",
        out_dtype="float32", form=name, shared_x="shared" in form, top_k=2 if name == "routed" else 0)
    assert (plan.form, plan.epilogue, plan.out_dtype) == (name, "none", "float32")
    assert plan.x_dtype == ("nvfp4" if scheme == "w4a4" else "float32")
    out = np.full_like(y, 7)
    assert nvfp4.gemm(x, packed, alpha=alpha, bias=bias, plan=plan, out=out, **given) is out
    untouched = [r for r in range(len(out)) if name == "grouped" and r not in {
        row for row, _, _ in reference.groups_of_rows(name, ROWS, len(w), **which)}]
    assert np.all(out[untouched] == 7) and np.all(y[untouched] == 0)
    out[untouched] = 0
    np.testing.assert_array_equal(out, y)
    np.testing.assert_array_equal(
        y, nvfp4.gemm(x, packed, alpha=alpha, bias=bias, out_dtype="float32", kernel=plan.kernel,
                      **given))


@pytest.mark.parametrize("interleave", [0, 8])
@pytest.mark.parametrize("scheme", ["w4a16", "w4a4"])
@pytest.mark.parametrize("form", [f for f in FORMS if not f.startswith("every_group")])
def test_swiglu_and_its_quantization(form, scheme, interleave):
    name = name_of(form)
    packed, w = weights(form, interleave)
    x, value = left(form, scheme)
    given, which = arguments(form)
    options = {"alpha": 0.5, "bias": normal(32, len(w), N), "swiglu_limit": 3.0, **given}
    y = nvfp4.gemm(x, packed, epilogue="swiglu", out_dtype="float32", **options)
    sums = reference.product(value, w, name, 0.5, options["bias"], **which)
    exact = reference.swiglu(sums, interleave, 3.0)
    close(y, exact)
    assert np.abs(y - reference.swiglu(sums, interleave)).max() > 0.1, "the limit matters"
    # Quantized from the FP32 values, nothing being rounded in between.
    scale = np.float32(0.01)
    q = nvfp4.gemm(x, packed, epilogue="swiglu_quantize", out_global_scale=scale, **options)
    assert isinstance(q, nvfp4.QuantizedTensor) and q.shape == exact.shape
    codes, scales = reference.quantize_max(y, scale)
    np.testing.assert_array_equal(q.scales, scales)
    np.testing.assert_array_equal(q.codes, codes)
    np.testing.assert_array_equal(q.global_scale, [scale])
    # One global scale for each row, measured.
    q = nvfp4.gemm(x, packed, epilogue="swiglu_quantize", out_scope="vector", **options)
    assert q.scope == "vector" and q.global_scale.shape == (len(exact),)
    rows = np.abs(y).max(1) > 0
    np.testing.assert_allclose(q.global_scale[rows], np.abs(y[rows]).max(1) / 2688, rtol=1e-6)
    error = np.abs(reference.decode(q.codes, q.scales, q.global_scale) - y)
    assert np.all(error[rows] <= 0.2 * np.abs(y[rows]).max(1, keepdims=True))
    # Into a result that is given, with a plan that is made before.
    plan = nvfp4.plan_gemm(packed, len(exact), x_dtype="nvfp4" if scheme == "w4a4" else "float32",
                           form=name, shared_x="shared" in form, top_k=2 if name == "routed" else 0,
                           epilogue="swiglu_quantize", swiglu_limit=3.0)
    assert (plan.epilogue, plan.out_dtype) == ("swiglu_quantize", "nvfp4")
    assert "SwiGLU, quantized" in repr(plan)
    del options["swiglu_limit"]
    assert nvfp4.gemm(x, packed, plan=plan, out=q, **options) is q
    space = np.zeros(plan.workspace_bytes, np.uint8)
    again = nvfp4.gemm(x, packed, plan=plan, out_scope="vector", workspace=space, **options)
    np.testing.assert_array_equal(again.codes[rows], q.codes[rows])


def test_quantized_results_have_a_scale_layout():
    packed, _ = weights("dense", 0)
    x = normal(33, ROWS, K)
    q = nvfp4.gemm(x, packed, epilogue="swiglu_quantize", out_global_scale=0.01)
    tiled = nvfp4.gemm(x, packed, epilogue="swiglu_quantize", out_global_scale=0.01,
                       out_layout="tiled_128x4")
    np.testing.assert_array_equal(tiled.scales.reshape(-1), reference.tile_128x4(q.scales))
    measured = nvfp4.gemm(x, packed, epilogue="swiglu_quantize")
    y = nvfp4.gemm(x, packed, epilogue="swiglu")
    np.testing.assert_allclose(measured.global_scale, np.abs(y).max() / 2688, rtol=1e-6)
    # What it gives is what the next product takes.
    down = nvfp4.pack_weights(nvfp4.quantize(normal(34, 8, N // 2)))
    assert nvfp4.gemm(measured, down).shape == (ROWS, 8)


def test_leading_dimensions_stay():
    packed, w = weights("dense", 0)
    x = normal(35, 2, 5, K)
    q = nvfp4.gemm(x, packed, epilogue="swiglu_quantize", out_global_scale=0.01)
    assert q.shape == (2, 5, N // 2) and q.codes.shape == (2, 5, N // 4)
    many, _ = weights("every_group")
    assert nvfp4.gemm(x, many).shape == (2, 5, GROUPS * N)


@pytest.mark.parametrize("error, words, call", [
    (nvfp4.InvalidValueError, "row_ends and expert_ids",
     lambda x, w: nvfp4.gemm(x, w, row_ends=[1, 2, 3], expert_ids=np.zeros((10, 1), np.int32))),
    (nvfp4.InvalidValueError, "row_starts without row_ends",
     lambda x, w: nvfp4.gemm(x, w, row_starts=[1, 2, 3])),
    (nvfp4.InvalidValueError, r"routing.ids of token 1, choice 0 = 3, must be in 0 … 2",
     lambda x, w: nvfp4.gemm(x[:2], w, expert_ids=np.array([[0], [3]], np.int32))),
    (nvfp4.ShapeError, "as expert_ids say",
     lambda x, w: nvfp4.gemm(x, w, expert_ids=np.zeros((3, 2), np.int32))),
    (nvfp4.InvalidValueError, "not packed as gate and up",
     lambda x, w: nvfp4.gemm(x, w, row_ends=[1, 2, 3], epilogue="swiglu")),
    (nvfp4.UnsupportedError, "must be none for every_group",
     lambda x, w: nvfp4.gemm(x, w, epilogue="swiglu")),
    (nvfp4.InvalidValueError, "epilogue = 'relu', must be one of none, swiglu, swiglu_quantize",
     lambda x, w: nvfp4.plan_gemm(w, 4, epilogue="relu")),
    (nvfp4.InvalidValueError, "form = 'sparse', must be one of dense, grouped, routed, every_group",
     lambda x, w: nvfp4.plan_gemm(w, 4, form="sparse")),
    (nvfp4.ShapeError, "m = 5, must be a multiple of top_k = 2",
     lambda x, w: nvfp4.plan_gemm(w, 5, form="routed", top_k=2)),
    (nvfp4.UnsupportedError, "device = cpu, must be a GPU to be tuned",
     lambda x, w: nvfp4.plan_gemm(w, 4, autotune=True)),
    (nvfp4.UnsupportedError, "device = cpu, must be a GPU to be tuned",
     lambda x, w: nvfp4.gemm(x, w, autotune=True)),
    (nvfp4.InvalidValueError, "must be empty with autotune = true",
     lambda x, w: nvfp4.plan_gemm(w, 4, autotune=True, kernel="reference_w4a16")),
])
def test_refusals_name_the_argument_and_the_rule(error, words, call):
    packed, _ = weights("grouped")
    with pytest.raises(error, match=words):
        call(normal(36, ROWS, K), packed)
