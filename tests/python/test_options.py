"""The functions on checkpoints, which are made from the tables of options."""

import inspect

import numpy as np
import pytest

import nvfp4
from nvfp4 import _core
from nvfp4._checkpoint import _words
from nvfp4._signatures import commands, documentation, signature, stub

COMMANDS = commands(_core)


def test_an_added_option_needs_no_other_line():
    added = {"keyword": "warmth", "kind": "number", "text": "how warm the values are", "choices": [], "former": "--hot 1",
             "fallback": 0.5, "required": False, "model": False}
    command = {**COMMANDS["quantize"], "options": [*COMMANDS["quantize"]["options"], added]}
    assert signature(command).parameters["warmth"].default == 0.5
    assert "\n    warmth      how warm the values are\n" in "\n    " + documentation(command).replace("\n", "\n    ")
    assert "warmth: float = 0.5" in stub({"quantize": command})
    assert _words(added, 1) == ["1.0"]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_functions_have_signature_and_documentation(command):
    function = getattr(nvfp4, command["function"])
    assert inspect.signature(function) == signature(command)
    assert max(map(len, function.__doc__.splitlines())) <= 100
    compile(stub({"": command}), "stub", "exec")


@pytest.mark.parametrize("given, error, match", [
    ({"resume": "yes"}, TypeError, "resume = 'yes'"),
    ({"input": 3}, TypeError, "input = 3"),
    ({"bits": "five"}, TypeError, "bits = 'five'"),
    ({"ignore": "*"}, TypeError, "ignore = .* must be a list"),
    ({"bits": 3}, nvfp4.InvalidValueError, "bits = '3.0', must be a number from 4.5 to 16"),
    ({"scheme": "w8a8"}, nvfp4.InvalidValueError, "scheme = 'w8a8'"),
    ({"format": "png"}, nvfp4.InvalidValueError, "format = 'png', must be one of modelopt"),
    ({"method": "gptq:x"}, nvfp4.InvalidValueError, "method = 'gptq:x'"),
    ({"allow": ["decode"]}, nvfp4.InvalidValueError, "allow = 'decode', must be one of drop"),
    ({"rank": 2, "ranks": 2}, nvfp4.InvalidValueError, "rank = 2"),
    ({"quantizer": "mse"}, TypeError, "quantizer.*did you mean method="),
    ({"force": True}, TypeError, r"force.*did you mean allow=\['broken-scales'\]\?"),
    ({"colour": "red"}, TypeError, "quantize_checkpoint.*colour"),
])
def test_wrong_arguments_are_named(tmp_path, given, error, match):
    nvfp4.sample(tmp_path / "m", layers=1, scale=1 / 64)
    with pytest.raises(error, match=match):
        nvfp4.quantize_checkpoint(**{"input": tmp_path / "m", "output": tmp_path / "out", **given})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("call", (nvfp4.quantize, nvfp4.global_scales, lambda x, method: nvfp4.nvfp4_quantize(
    x, 1.0, method=method)))
def test_tensor_functions_name_their_methods(call):
    with pytest.raises(nvfp4.InvalidValueError, match="^method = 'gptq', must be one of max, four_over_six, mse$"):
        call(np.ones((4, 64), np.float32), method="gptq")


def test_weights_default_to_mse_and_activations_to_max():
    for function in (nvfp4.quantize, nvfp4.global_scales):
        assert inspect.signature(function).parameters["method"].default == "mse"
    for function in (nvfp4.nvfp4_quantize, nvfp4.silu_and_mul_nvfp4_quantize,
                     nvfp4.rmsnorm_fp4quant, nvfp4.add_rmsnorm_fp4quant):
        assert inspect.signature(function).parameters["method"].default == "max"
