"""nvfp4.transformers: the modules of a loaded model, each for itself; versions of transformers."""

import copy
import json
import gc
import importlib
import os
import pickle
import sys
import weakref

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

import nvfp4
import nvfp4.transformers as backend
from models_of_families import TOKENS
from test_nvfp4_transformers import damaged, folders, load, logits, ours


class Calls(TorchDispatchMode):
    """Counts the operators of this package that PyTorch dispatches."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "nvfp4":
            self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def attention_of(model):
    return model.model.layers[0].self_attn


def input_of(model, seed=5):
    torch.manual_seed(seed)
    return torch.randn(3, model.config.hidden_size)


def test_each_layer_calls_one_operator_through_the_dispatcher(folders):
    model = load(folders("llama")[0])
    with torch.no_grad(), Calls() as calls:
        model(TOKENS)
    assert calls.names == ["linear"] * 4 * len(model.model.layers)  # q, k, v; o; gate, up; down


@pytest.mark.parametrize("context", (torch.no_grad, torch.enable_grad, torch.inference_mode))
def test_an_input_that_changed_is_multiplied_again(folders, context):
    attention = attention_of(load(folders("qwen2")[0]))
    with context():
        x = input_of(attention)
        expected = [p(x * -3) for p in (attention.q_proj, attention.k_proj)]
        first = attention.q_proj(x)
        x.mul_(-3)
        again = [attention.q_proj(x), attention.k_proj(x)]
        assert all(map(torch.equal, again, expected)) and not torch.equal(first, again[0])


@pytest.mark.parametrize("context", (torch.no_grad, torch.inference_mode))
def test_a_changed_input_is_multiplied_again(folders, context):
    attention = attention_of(load(folders("qwen2")[0]))
    attention.forward = lambda x: (attention.q_proj(x), x.mul_(-3), attention.k_proj(x))[2]
    with context():
        x = input_of(attention)
        expected = attention.k_proj(x * -3)
        assert torch.equal(attention(x), expected)


def test_cached_results_without_gradient_are_not_reused(folders):
    attention = attention_of(load(folders("qwen2")[0]))

    def forward(x):
        with torch.no_grad():
            attention.q_proj(x)
        return attention.k_proj(x)

    attention.forward = forward
    assert attention(input_of(attention)).requires_grad  # of the bias


def test_one_layer_alone_keeps_nothing(folders):
    model = load(folders("llama")[0])
    attention, x = attention_of(model), input_of(model)
    with torch.no_grad():
        attention.q_proj(x)

        def forward(x):
            attention.q_proj(x)
            raise RuntimeError("stopped")

        attention.forward = forward
        with pytest.raises(RuntimeError, match="stopped"):
            attention(x)
    held = weakref.ref(x)
    del x
    gc.collect()
    assert held() is None


def test_a_bias_that_is_assigned_counts(folders):
    model = load(folders("llama")[0])
    attention, x = attention_of(model), input_of(model)
    plain = [p(x) for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
    bias = torch.randn(attention.k_proj.out_features)
    attention.k_proj.bias = torch.nn.Parameter(bias)
    assert torch.equal(attention.q_proj(x), plain[0]) and torch.equal(attention.v_proj(x), plain[2])
    torch.testing.assert_close(attention.k_proj(x), plain[1] + bias)


@pytest.mark.parametrize("name", ("q_proj", "k_proj", "o_proj"))
def test_a_weight_that_is_assigned_is_refused(folders, name):
    model = load(folders("llama")[0])
    layer = getattr(attention_of(model), name)
    layer.weight = torch.nn.Parameter(torch.zeros(layer.out_features, layer.in_features))
    with pytest.raises((nvfp4.UnsupportedError, TypeError), match="weight was assigned|dtype"):
        layer(input_of(model))


@pytest.mark.parametrize("name", ("q_proj", "o_proj"))
def test_bytes_of_another_device_are_refused(folders, name):
    model = load(folders("llama")[0])
    layer = getattr(attention_of(model), name)
    layer.packed_for = "cuda"  # as after a move of single tensors, which packs nothing again
    with pytest.raises(nvfp4.UnsupportedError, match=f"{name}: packed for cuda, .* moved to cpu"):
        layer(input_of(model))


@pytest.mark.parametrize("family", ("llama", "qwen3_moe"))
def test_models_are_pickled_and_copied(folders, family):
    model = load(folders(family, "w4a4")[0])
    expected = logits(model)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert {name: type(m) for name, m in other.named_modules()} == {n: type(m) for n, m in model.named_modules()}
        with torch.no_grad(), Calls() as calls:
            assert torch.equal(other(TOKENS).logits, expected)
        assert len(calls.names) == (4 if family == "llama" else 3) * len(model.model.layers)


def test_experts_of_all_layers_are_one_graph(folders):
    model = load(folders("mixtral")[0])
    counter = CompileCounter()
    experts = [m for m in ours(model).values() if isinstance(m, backend.Nvfp4Experts)]
    x, ids, weights = input_of(model), torch.tensor([[0, 1], [2, 3], [1, 2]]), torch.ones(3, 2)
    with torch.no_grad():
        for module in experts:
            torch.compile(module, backend=counter, fullgraph=True)(x, ids, weights)
    assert len(experts) == 2 and counter.frame_count == 1


@pytest.mark.parametrize("family", ("llama", "qwen3_moe"))
def test_a_loaded_model_compiles_with_gradients(folders, family):
    """The unquantized parameters of the loaded model take gradients."""
    model = load(folders(family)[0])
    results = []
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        run(TOKENS, labels=TOKENS).loss.backward()
        results.append({name: p.grad for name, p in model.named_parameters()})
        model.zero_grad()
    assert results[0] and all(g is not None and float(g.abs().max()) > 0 for g in results[0].values())
    for name, gradient in results[0].items():
        torch.testing.assert_close(results[1][name], gradient, rtol=1e-3, atol=1e-5, msg=name)


# --- versions of transformers ---------------------------------------------------------------------


def test_a_newer_version_is_tried_with_a_warning(monkeypatch):
    monkeypatch.setattr("transformers.__version__", "6.1.0")
    with pytest.warns(UserWarning, match="transformers 6.1.0 is newer than 5.24, the newest version"):
        importlib.reload(backend)


def test_an_older_version_is_refused(monkeypatch):
    monkeypatch.setattr("transformers.__version__", "5.16.1")
    with pytest.raises(nvfp4.UnsupportedError, match="transformers 5.16.1, must be 5.17 or newer"):
        importlib.reload(backend)


def test_a_changed_interface_is_named(monkeypatch):
    monkeypatch.delattr("transformers.core_model_loading.MergeModulelist")
    for name in ("conversions", "quantizer", "registry"):
        monkeypatch.delitem(sys.modules, f"nvfp4.transformers.{name}")
    with pytest.raises(nvfp4.UnsupportedError, match="has changed what nvfp4 needs of it: .*MergeModulelist"):
        importlib.reload(backend)


@pytest.mark.parametrize("activation, operators", (("silu", {"moe"}), ("gelu", {"grouped_linear"})))
@pytest.mark.parametrize("family", ("mixtral", "qwen3_moe"))
def test_experts_with_swiglu_are_one_operator(folders, tmp_path, family, activation, operators):
    folder = damaged(folders(family)[0], tmp_path / activation, lambda tensors: None)
    config = json.loads((folder / "config.json").read_text()) | {"hidden_act": activation}
    (folder / "config.json").write_text(json.dumps(config))
    model = load(folder)
    with torch.no_grad(), Calls() as calls:
        alone = model(TOKENS).logits
    assert set(calls.names) == operators | {"linear"}
    with Calls() as calls:  # with gradients
        by_operators = model(TOKENS).logits.detach()
    assert set(calls.names) == {"linear", "grouped_linear"}
    # FP32 sums of up to 128 terms in another order, in two layers.
    torch.testing.assert_close(alone, by_operators, rtol=0, atol=2 * 128 * 2**-24 * float(by_operators.abs().max()))
