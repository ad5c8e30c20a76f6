"""nvfp4.transformers: versions of transformers."""

import importlib
import os
import sys

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import nvfp4
import nvfp4.transformers as backend


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
