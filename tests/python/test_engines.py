"""Tests of the engines' plugins: configurations of checkpoints, accepted versions, and requirements of layers."""

import logging
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import nvfp4
from nvfp4 import engines
from nvfp4._forms import FORMS
from nvfp4._quantization_config import OTHER, Schemes, unsupported_reason
from nvfp4._versions import interface, require_oldest, warn_if_untested
from nvfp4.engines.config import EngineConfig
from nvfp4.engines.methods import LinearMethod
from reference import normal

GROUP = {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"],
         "input_activations": None}
INPUTS = {**GROUP, "input_activations": {"num_bits": 4}}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
FUSED = ("q_proj", "k_proj", "v_proj")


MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
    "a.q_proj": {"quant_algo": "NVFP4"}, "a.o_proj": {"quant_algo": "W4A16_NVFP4"}, "b.up_proj": {"quant_algo": "FP8"}}}
FP8_GROUP = {"weights": {"num_bits": 8, "type": "float"}, "targets": ["re:.*up_proj"]}


@pytest.mark.parametrize("config, expected", [
    (MODELOPT, None),
    ({"quant_method": "modelopt", "quantization": {"quant_algo": "W4A16_NVFP4"}}, None),
    (MIXED, None),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "quant_algo 'FP8'"),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}}, None),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP, "group_1": FP8_GROUP}}, None),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_1": FP8_GROUP}},
     "quant_method 'compressed-tensors' without"),
    ({"quant_method": "gptq"}, "quant_method 'gptq' without"),
])
def test_checkpoints_with_nvfp4_are_taken(config, expected):
    reason = unsupported_reason(config)
    assert (reason or "").startswith(expected or "") and bool(reason) == bool(expected)
    if expected:
        with pytest.raises(nvfp4.UnsupportedError, match=f"{expected}.*, must have NVFP4"):
            Configured.from_config(config)


@pytest.mark.parametrize("ignored, names", [
    (["lm_head"], {"lm_head": None, "model.lm_head2": "W4A4"}),
    (["*.mlp.gate"], {"model.layers.0.mlp.gate": None, "model.layers.0.mlp.gate_proj": "W4A4"}),
    (["model.layers.1"], {"model.layers.1.mlp.up_proj": None, "model.layers.10.mlp.up_proj": "W4A4"}),
    (["re:.*down_proj"], {"model.layers.0.mlp.down_proj": None, "model.layers.0.mlp.up_proj": "W4A4"}),
])
def test_what_is_ignored(ignored, names):
    schemes = Schemes({**MODELOPT, "ignore": ignored})
    assert {name: schemes.of_layer(name) for name in names} == names


def test_layers_have_kinds_of_their_own():
    schemes = Schemes(MIXED)
    assert [schemes.of_layer(n) for n in ("a.q_proj", "a.o_proj", "b.up_proj", "a.up_proj")] == ["W4A4", "W4A16", "other", None]
    groups = {"one": {**INPUTS, "targets": ["re:.*q_proj"]}, "two": {**GROUP, "targets": ["a.o_proj"]}, "three": FP8_GROUP}
    schemes = Schemes({"quant_method": "compressed-tensors", "config_groups": groups})
    assert [schemes.of_layer(n) for n in ("a.q_proj", "a.o_proj", "b.up_proj")] == ["W4A4", "W4A16", "other"]
    with pytest.raises(nvfp4.UnsupportedError, match="b.gate_up_proj: .* are of different kinds"):
        schemes.of_layer("b.gate_up_proj", ("q_proj", "up_proj"))


class Configured(EngineConfig):
    """The configuration of an engine that has FP4 tensor cores or not, and FP8 methods of its own."""

    engine = "vLLM", "0.32", engines.VLLM[1]
    fp4 = True

    def make_own(self, config):
        return SimpleNamespace(get_quant_method=lambda layer, prefix: f"vLLM's for {prefix}")

    def has_fp4_tensor_cores(self):
        return self.fp4


def test_other_kinds_have_the_methods_of_the_engine():
    config = Configured.from_config(MIXED)
    assert config.scheme("b.up_proj") == OTHER
    assert config.own.get_quant_method(None, "b.up_proj") == "vLLM's for b.up_proj"
    assert Configured.from_config(MODELOPT).own is None


@pytest.mark.parametrize("asked, fp4, mode", [
    (None, True, "W4A4"), (None, False, "W4A16"), ("auto", False, "W4A16"), ("nvfp4", False, "W4A4"), ("bf16", True, "W4A16")])
def test_activations_follow_the_device_or_the_environment(monkeypatch, asked, fp4, mode):
    monkeypatch.setenv("NVFP4_ACTIVATIONS", asked or "")
    config = Configured.from_config(MIXED)
    config.fp4 = fp4
    assert config.scheme("a.q_proj") == mode and config.scheme("a.o_proj") == "W4A16"


def test_an_unknown_choice_of_activations_is_named(monkeypatch):
    monkeypatch.setenv("NVFP4_ACTIVATIONS", "fp4")
    with pytest.raises(nvfp4.InvalidValueError, match="NVFP4_ACTIVATIONS=fp4, must be auto, nvfp4 or bf16"):
        Configured.from_config(MODELOPT).scheme("a.q_proj")


def test_linear_layers_follow_the_arithmetic_of_the_environment(monkeypatch):
    monkeypatch.setenv("NVFP4_ARITHMETIC", "")
    assert LinearMethod(None, "W4A16", "a").arithmetic == "exact"
    monkeypatch.setenv("NVFP4_ARITHMETIC", "fp8")
    assert LinearMethod(None, "W4A16", "a").arithmetic == "fp8"
    monkeypatch.setenv("NVFP4_ARITHMETIC", "bf16")
    with pytest.raises(nvfp4.InvalidValueError, match="NVFP4_ARITHMETIC=bf16, must be exact or fp8"):
        LinearMethod(None, "W4A16", "a")


@pytest.mark.parametrize("scheme, input_scale, expected", [
    ("W4A16", 0.1, "fp8"), ("W4A4", 0.1, "exact"), ("W4A4", float("nan"), "exact")])
def test_quantized_inputs_are_multiplied_exactly(monkeypatch, scheme, input_scale, expected):
    monkeypatch.setenv("NVFP4_ARITHMETIC", "fp8")
    form, method, layer = FORMS["modelopt"], LinearMethod(FORMS["modelopt"], scheme, "a"), torch.nn.Module()
    q, method.parts = nvfp4.quantize(torch.from_numpy(normal(5, 32, 64))), [32]
    for name, tensor in zip(form.names, (q.codes, q.scales.view(torch.float8_e4m3fn), q.global_scale.reshape(1),
                                         torch.tensor([input_scale]))):
        layer.register_parameter(name, torch.nn.Parameter(tensor, False))
    method.process_weights_after_loading(layer)
    assert method.arithmetic == expected


@pytest.mark.parametrize("target, message", [
    ("re:([a-z0-9_.]+)+!$", "no target of config_groups"), ("re:(?!x)([a-z0-9_.]+)+[A-Z]$", "takes more than")])
def test_a_target_that_re_takes_years_for_ends(target, message):
    name = "model.layers.10.mlp.experts.100.up_proj"
    groups = {"one": {**INPUTS, "targets": [target]}}
    with pytest.raises(nvfp4.FormatError, match=message):
        Schemes({"quant_method": "compressed-tensors", "config_groups": groups}).of_layer(name)
    ignoring = Schemes({**MODELOPT, "ignore": [target]})
    if message.startswith("no"):
        assert ignoring.of_layer(name) == "W4A4"
    else:
        with pytest.raises(nvfp4.FormatError, match=message):
            ignoring.of_layer(name)


def test_fused_parts_must_be_of_one_kind():
    whole = Schemes({**MODELOPT, "ignore": [f"a.{part}" for part in FUSED]})
    assert whole.of_layer("a.qkv_proj", FUSED) is None
    assert Schemes(MODELOPT).of_layer("a.qkv_proj", FUSED) == "W4A4"
    with pytest.raises(nvfp4.UnsupportedError, match="a.qkv_proj: .* are of different kinds"):
        Schemes({**MODELOPT, "ignore": ["a.k_proj"]}).of_layer("a.qkv_proj", FUSED)
    assert Schemes({**MODELOPT, "ignore": ["a.qkv_proj"]}).of_layer("a.qkv_proj", FUSED) is None


def test_names_are_those_of_the_engine():
    schemes = Schemes({**MODELOPT, "ignore": ["model.visual*", "lm_head"]})
    schemes.rename(lambda names: [n.replace("model.visual", "visual") for n in names])
    assert schemes.of_layer("visual.blocks.0.mlp.fc1") is None and schemes.of_layer("visual") is None
    assert schemes.of_layer("lm_head") is None and schemes.of_layer("model.layers.0.mlp.up_proj") == "W4A4"


@pytest.mark.parametrize("version, known", [
    ("0.31.9", None), ("0.32.0", True), ("0.32.1+cpu", True), ("0.33.0rc1", False), ("1.0", False)])
def test_versions(version, known):
    """Older ones than were tested are an error, newer ones a warning."""
    if known is None:
        with pytest.raises(nvfp4.UnsupportedError, match=f"vLLM {version}, must be 0.32 or newer"):
            require_oldest("vLLM", version, (0, 32))
        return
    require_oldest("vLLM", version, (0, 32))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_if_untested("vLLM", version, (0, 32))
    assert [f"vLLM {version} is newer than 0.32" in str(w.message) for w in said] == ([] if known else [True])


@pytest.mark.parametrize("version, change, message", [
    ("0.25", None, "must be 0.26 or newer"), ("0.99", ImportError("no RoutedExperts"), "0.99 has changed .* no RoutedExperts"),
    ("0.99", AttributeError("no registry"), "0.99 has changed .* no registry"), ("0.99", None, None)])
def test_an_engine_without_what_is_needed_runs_on(caplog, version, change, message):
    registered = []

    def load():
        if change:
            raise change
        return SimpleNamespace(register=lambda: registered.append(version))

    with caplog.at_level(logging.WARNING):
        engines._register("vLLM", version, engines.VLLM, load)
    assert bool(registered) == (message is None)
    assert bool(caplog.records) == bool(message) and re.search(message or "", caplog.text)


def test_a_missing_module_of_ours_is_named():
    with pytest.raises(ImportError), interface("vLLM", "0.32"):
        raise ImportError("no EntryList", name="nvfp4._core")


def test_extras_have_no_upper_bound():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not [r for of in extras.values() for r in of if "<" in r or "==" in r]
    for name, (oldest, _) in (("vllm", engines.VLLM), ("sglang", engines.SGLANG)):
        assert extras[name] == [f"{name}>={'.'.join(map(str, oldest))}"]


# --- a linear layer that an engine fused ------------------------------------------------------------


class Stored(torch.nn.Parameter):
    """A parameter as the engines make them: its loader writes a scalar into a part, the first without a name."""

    def __new__(cls, data, weight_loader, **dims):
        self = super().__new__(cls, data, requires_grad=False)
        self.weight_loader = weight_loader
        return self


def loaded_layer(scalars, scheme="W4A16"):
    """(method, layer, weights) of q, k and v; `scalars`: (name, value, part) as loaders get them."""
    method = LinearMethod(FORMS["modelopt"], scheme, "a.qkv_proj")
    method.parameter = SimpleNamespace(ModelWeightParameter=Stored, GroupQuantScaleParameter=Stored,
                                       PerTensorScaleParameter=Stored)
    layer, rows = torch.nn.Module(), (32, 16, 16)

    def loader(param, loaded_weight, part=None):
        param.data[part or 0] = loaded_weight

    method.create_weights(layer, 64, rows, 64, 64, torch.float32, weight_loader=loader)
    q = nvfp4.quantize(torch.from_numpy(normal(3, 64, 64)), global_scale=1.0)
    layer.weight.data.copy_(q.codes)
    layer.weight_scale.data.view(torch.uint8).copy_(q.scales)
    for name, value, *part in scalars:
        param = getattr(layer, name)
        param.weight_loader(param, torch.tensor(value), *part)
    return method, layer, nvfp4.dequantize(q)


@pytest.mark.parametrize("scalars, factors", [
    ([("weight_scale_2", 0.5, 0), ("weight_scale_2", 2.0, 1), ("weight_scale_2", 4.0, 2)], (0.5, 2.0, 4.0)),
    ([("weight_scale_2", 2.0)], (2.0, 2.0, 2.0)), ([("weight_scale_2", 2.0, None)], (2.0, 2.0, 2.0))])
def test_fused_parts_have_the_scales_that_were_loaded(scalars, factors):
    method, layer, weights = loaded_layer(scalars)
    method.process_weights_after_loading(layer)
    x = torch.from_numpy(normal(4, 3, 64))
    expected = x @ (weights * torch.tensor(factors).repeat_interleave(torch.tensor([32, 16, 16])).unsqueeze(1)).T
    torch.testing.assert_close(method.apply(layer, x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parts", [(0,), (0, 2), (1, 2)])
def test_a_missing_global_scale_is_refused(parts):
    method, layer, _ = loaded_layer([("weight_scale_2", 2.0, part) for part in parts])
    with pytest.raises(nvfp4.FormatError, match="a.qkv_proj: no 'weight_scale_2' was loaded"):
        method.process_weights_after_loading(layer)


def test_a_missing_input_scale_is_measured():
    whole = [("weight_scale_2", 2.0)]
    for given, stored in (([("input_scale", 0.5)], True), ([("input_scale", 0.5, 0)], False)):
        method, layer, _ = loaded_layer(whole + given, "W4A4")
        method.process_weights_after_loading(layer)
        assert (layer.input_multiplier is not None) == stored
