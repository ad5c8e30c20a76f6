"""nvfp4.transformers: the modules of a loaded model, each for itself; versions of transformers."""

import copy
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
from test_nvfp4_transformers import folders, load, logits, ours


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


@pytest.mark.parametrize("family", ("llama", "qwen3_moe"))
def test_a_loaded_model_compiles_with_gradients(folders, family):
    """As it comes: its parameters that are not quantized take gradients."""
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
