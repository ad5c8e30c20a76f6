"""Shared by the tests of the Python package."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def without_our_backend():
    """transformers' own quantizers: other files of the same run may have registered ours."""
    backend = sys.modules.get("nvfp4.transformers")
    if backend:
        backend.unregister()
    yield
    if backend:
        backend.register()
