"""The type stubs say what is there, and nothing else."""

import ast
import inspect
import sys
from pathlib import Path

import pytest

import nvfp4

STUB = Path(nvfp4.__file__).with_name("__init__.pyi")
TREE = ast.parse(STUB.read_text(encoding="utf-8"))
FUNCTIONS = {node.name: node for node in TREE.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}


def parameters(node):
    """(name, kind, default as text or None) as the stub says."""
    a, kinds = node.args, inspect.Parameter
    assert all(p.annotation is not None for p in (*a.args, *a.kwonlyargs) if p.arg != "self")
    defaults = [None] * (len(a.args) - len(a.defaults)) + a.defaults
    found = [(p.arg, kinds.POSITIONAL_OR_KEYWORD, d) for p, d in zip(a.args, defaults)]
    found += [(a.vararg.arg, kinds.VAR_POSITIONAL, None)] if a.vararg else []
    found += [(p.arg, kinds.KEYWORD_ONLY, d) for p, d in zip(a.kwonlyargs, a.kw_defaults)]
    return [(name, kind, None if d is None else ast.unparse(d)) for name, kind, d in found]


def test_the_stub_names_what_the_package_exports():
    assert {*FUNCTIONS, *(c for c in CLASSES if not c.startswith("_"))} == set(nvfp4.__all__)
    for name in ("_core.pyi", "py.typed"):
        assert STUB.with_name(name).exists(), name


@pytest.mark.parametrize("name", [f for f in FUNCTIONS if hasattr(getattr(nvfp4, f), "__code__")])
def test_signatures_are_those_of_the_functions(name):
    function = getattr(nvfp4, name)
    real = [(p.name, p.kind, None if p.default is p.empty else p.default)
            for p in inspect.signature(function).parameters.values()]
    stub = parameters(FUNCTIONS[name])
    assert [p[:2] for p in stub] == [p[:2] for p in real]
    for (parameter, _, text), (_, _, default) in zip(stub, real):
        if text is None or text == "...":
            assert (text is None) == (default is None), parameter
        else:
            assert ast.literal_eval(text) == default, parameter
    assert function.__doc__


@pytest.mark.parametrize("name", ["SfLayout", "QuantizedTensor", "PackedWeights", "GemmPlan"])
def test_members_are_there(name):
    instance = getattr(nvfp4, name)
    fields = {*dir(instance), *getattr(instance, "__annotations__", {})}
    for node in CLASSES[name].body:
        member = (node.name if isinstance(node, ast.FunctionDef) else
                  node.target.id if isinstance(node, ast.AnnAssign) else node.targets[0].id)
        assert member in fields, member


@pytest.mark.parametrize("name", ["ShapeError", "UnsupportedError", "IoError", "FormatError"])
def test_errors_have_the_bases_of_the_stub(name):
    bases = [ast.unparse(b) for b in CLASSES[name].bases]
    assert bases == [b.__name__ for b in getattr(nvfp4, name).__bases__]


def test_every_global_scale_says_which_way_it_goes():
    """In the documentation of the function."""
    for name in FUNCTIONS:
        function = getattr(nvfp4, name)
        if not hasattr(function, "__code__"):
            continue
        for parameter in inspect.signature(function).parameters:
            if parameter in ("global_scale", "a_global_sf", "global_scale_tensor") or (
                    parameter == "alpha" and name.endswith("mm_fp4")):
                after = function.__doc__.split(parameter, 1)[1]
                assert "MULTIPLIER" in after or "DIVISOR" in after, (name, parameter)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="nanobind needs Python 3.12 for it")
def test_the_module_uses_the_stable_abi():
    assert nvfp4._core.__file__.endswith(".abi3.so")
