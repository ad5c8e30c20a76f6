"""The plan of `nvfp4 quantize` for models of 2026 against the lists of their vendors: published_models.py.

A model has the names and shapes of transformers' class, made on the meta device, and a sparse file for weights.
"""

import fnmatch
import json
import re
import struct
import sys
from pathlib import Path

import pytest

import nvfp4
from published_models import MODELS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.24", reason="transformers 5.24 is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import architectures  # noqa: E402

#: Modules that are no torch.nn.Linear, which ModelOpt passes over.
PASSED = ("*embed*", "*conv*", "*norm*", "*.mlp.gate", "*.mixer.gate", "*.ffn.gate", "*.router.*", "*.hc_*", "*_bias",
          "*pos_emb*", "*.ape", "*.tid2eid", "*per_expert_scale",
          "*scale_shift_table")
#: What the report calls layers with these formats.
ACTIONS = {"nvfp4": "quantized", "w4a16": "quantized", "mxfp8": "fp8"}
QUICK = ("nvidia/DeepSeek-V3.2-NVFP4", "nvidia/Qwen3.6-35B-A3B-NVFP4", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")


def made(model):
    """Returns shapes by name, and the configuration as JSON."""
    if model.type[0].isupper():
        diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
        with torch.device("meta"):
            built = getattr(diffusers, model.type)(**model.config)
        return {name: tuple(weight.shape) for name, weight in built.state_dict().items()}, dict(built.config) | {
            "_class_name": model.type}
    config = architectures.CONFIG_MAPPING[model.type](**architectures.SETTINGS.get(model.type, {}) | model.config)
    config = architectures.shrink(config)
    for key, value in model.config.items():
        if not isinstance(value, dict):
            setattr(config, key, value)
    for name in architectures.model_classes()[model.type]:
        try:
            built = architectures.build(getattr(architectures.transformers, name), config)
            break
        except (AttributeError, ValueError):  # a class of the text model alone
            continue
    state = architectures.revert_weight_conversion(built, dict(built.state_dict()))
    # transformers 5.24 renames the layers of Kimi's language model as those of its vision tower.
    shapes = {name.replace("language_model.model.blocks.", "language_model.model.layers."): tuple(weight.shape)
              for name, weight in state.items()}
    if model.mtp:
        config.num_nextn_predict_layers = 1
        last = max(int(n) for name in shapes for n in re.findall(r"layers\.(\d+)\.", name) if "vis" not in name)
        shapes |= {re.sub(rf"^.*layers\.{last}\.", model.mtp, name): shape for name, shape in shapes.items()
                   if f"layers.{last}." in name and "vis" not in name}
        hidden = config.get_text_config().hidden_size
        shapes["mtp.fc.weight" if model.mtp.startswith("mtp.") else f"{model.mtp}eh_proj.weight"] = (hidden, 2 * hidden)
    return shapes, config.to_dict()


def save(at, shapes, config):
    at.mkdir()
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with open(at / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    (at / "config.json").write_text(json.dumps(config, default=str))


def format_of(module, formats):
    return [form for pattern, form in formats.items() if fnmatch.fnmatchcase(module, pattern)][-1]


def check(tmp_path, model):
    save(tmp_path / "model", *made(model))
    report = nvfp4.quantize_checkpoint(tmp_path / "model", tmp_path / "out", dry_run=True, recipe=model.recipe or None)
    layers = {t["name"].removesuffix(".weight"): t for t in report["tensors"] if len(t["shape"]) > 1}
    if not model.vendor:
        assert {t["kind"] for t in layers.values() if t["action"] == "kept"} - {"embedding", "norm", "convolution"} == \
            set(model.kept.split(", "))
        return
    wrong, differing = [], set()
    for module, tensor in layers.items():
        if any(fnmatch.fnmatchcase(module, pattern) for pattern in PASSED):
            assert tensor["action"] == "kept", module
            continue
        expected = format_of(module, model.vendor)
        found = [pattern for pattern in model.differs if fnmatch.fnmatchcase(module, pattern)]
        if (tensor["action"] == ACTIONS.get(expected, "kept" if expected == "keep" else expected)) == bool(found):
            wrong.append((module, tensor["action"], expected))
        differing.update(found)
    assert not wrong
    assert differing == set(model.differs)
    formats = {format_of(m, model.vendor) for m in layers} - {"keep"}
    assert formats == {r["action"] for r in report["rules"] if r["decided"]} - {"keep"} or formats == {"nvfp4"}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS])
def test_plan_is_that_of_the_vendor(tmp_path, name):
    check(tmp_path, MODELS[name])


def test_each_published_recipe_is_compared():
    recipes = {file.stem for file in (Path(__file__).parents[2] / "recipes").glob("*.yaml")}
    compared = {model.recipe for model in MODELS.values() if model.recipe}
    assert recipes - compared == {"all", "mlp", "nvidia", "w4a16"}
