"""nvfp4.transformers: checkpoints of tiny models, run by transformers on our kernels.

The reference is the model's own code in FP64 with decoded weights, and, for W4A4, with inputs of its
linear layers that nvfp4.quantize quantized and decoded.
"""

import json
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from safetensors.torch import load_file, save_file

import nvfp4
import nvfp4.transformers as backend
from models_of_families import FAMILIES, TOKENS
from nvfp4._quantization_config import Schemes, is_loaded_by_ours
from test_torch_quantize import different
from transformers.quantizers import auto

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

FORMATS = ("modelopt", "compressed-tensors")
SCHEMES = ("w4a16", "w4a4")
INPUT_AMAX = 10.5


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(family, scheme, format) -> (quantized, source) folders, made once."""
    made, sources = {}, {}

    def get(family, scheme="w4a16", format="modelopt"):
        key = family, scheme, format
        if key not in made:
            at = tmp_path_factory.mktemp("model")
            if family not in sources:
                torch.manual_seed(1)
                FAMILIES[family]().to(torch.bfloat16).save_pretrained(at / "source")
                sources[family] = at / "source"
            (at / "amax.json").write_text(json.dumps({"*": INPUT_AMAX}))
            nvfp4.quantize_checkpoint(sources[family], at / "quantized", scheme=scheme, format=format,
                                      input_amax=at / "amax.json")
            made[key] = at / "quantized", sources[family]
        return made[key]

    return get


def load(folder, dtype=torch.float32, **options):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, output_loading_info=True, **options)
    assert not any(info.values()), info
    return model.eval()


def logits(model, tokens=TOKENS):
    with torch.no_grad():
        return model(tokens).logits


def ours(model):
    return {name: m for name, m in model.named_modules()
            if isinstance(m, (backend.Nvfp4Linear, backend.Nvfp4Experts))}


def tensors(folder):
    return {name: t for file in sorted(folder.glob("*.safetensors"))
            for name, t in load_file(file).items()}


def weight_of(stored, module):
    """FP32, decoded by hand from a checkpoint of either format."""
    codes = stored.get(f"{module}.weight_packed", stored.get(f"{module}.weight"))
    scale = stored.get(f"{module}.weight_scale_2")
    scale = 1 / stored[f"{module}.weight_global_scale"] if scale is None else scale
    table = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
    table = torch.cat([table, -table])
    values = torch.stack([table[(codes & 15).long()], table[(codes >> 4).long()]], -1).flatten(1)
    blocks = stored[f"{module}.weight_scale"].float().repeat_interleave(16, 1)
    return values * blocks * scale.reshape(())


def quantized_input(x, rows_of=None):
    """Returns the input of a W4A4 layer with an input_amax of 10.5."""
    rows = x.reshape(-1, x.shape[-1]).float().contiguous()
    q = nvfp4.quantize(rows, "max", global_scale=INPUT_AMAX / 2688)
    return nvfp4.dequantize(q, "float32").reshape(x.shape).to(x.dtype)


class Reference:
    """The plain model with decoded weights; its linear layers' inputs quantized for W4A4."""

    def __init__(self, model, quantized, source, scheme, dtype):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype).eval()
        stored, quantize = tensors(quantized), scheme == "w4a4"
        for name, module in ours(model).items():
            plain = self.model.get_submodule(name)
            if isinstance(module, backend.Nvfp4Linear):
                plain.weight.data = weight_of(stored, module.checkpoint_name).to(dtype)
                if quantize:
                    plain.register_forward_pre_hook(lambda m, a: (quantized_input(a[0]),))
            else:
                self._experts(plain, stored, module, quantize, dtype)

    @staticmethod
    def _experts(plain, stored, module, quantize, dtype):
        names = sorted({n.rpartition(".")[0] for n in stored if ".experts." in n},
                       key=lambda n: int(n.split(".experts.")[1].split(".")[0]))
        layer = module.checkpoint_name.split(".layers.")[1].split(".")[0]
        mine = [n for n in names if f".layers.{layer}." in n]
        part = lambda ends: torch.stack([weight_of(stored, n) for n in mine if n.endswith(ends)])
        gate, up, down = part(("gate_proj", "w1")), part(("up_proj", "w3")), part(("down_proj", "w2"))
        plain.gate_up_proj.data = torch.cat([gate, up], 1).to(dtype)
        plain.down_proj.data = down.to(dtype)

        def forward(x, ids, weights):
            out = torch.zeros_like(x)
            maybe = quantized_input if quantize else lambda value: value
            for expert in ids.unique().tolist():
                token, choice = (ids == expert).nonzero(as_tuple=True)
                hidden = plain._apply_gate(maybe(x)[token] @ plain.gate_up_proj[expert].T)
                part = maybe(hidden) @ plain.down_proj[expert].T
                out.index_add_(0, token, (part * weights[token, choice, None]).to(x.dtype))
            return out

        plain.forward = forward

    def logits(self):
        return logits(self.model)


def distance(a, b):
    return float((a.double() - b.double()).square().mean().sqrt())


#: Both formats for one model of each kind, one format for the others.
CASES = [(family, format) for family in FAMILIES for format in FORMATS
         if format == "modelopt" or family in ("llama", "mixtral")]


@pytest.mark.parametrize("family, format", CASES)
def test_weights_alone_give_what_decoded_weights_give(folders, family, format):
    quantized, source = folders(family, "w4a16", format)
    model = load(quantized)
    assert len(ours(model)) >= 5
    exact = Reference(model, quantized, source, "w4a16", torch.float64).logits()
    rounded = Reference(model, quantized, source, "w4a16", torch.float32).logits()
    # FP32 sums of another order: not further from FP64 than PyTorch's own, within a factor.
    assert distance(logits(model), exact) <= 4 * distance(rounded, exact)


@pytest.mark.parametrize("family, format", [
    ("llama", "modelopt"), ("llama", "compressed-tensors"), ("qwen2", "compressed-tensors"),
    ("mixtral", "modelopt"), ("qwen3_moe", "compressed-tensors")])
def test_w4a4_quantizes_inputs_with_the_stored_scale(folders, family, format):
    quantized, source = folders(family, "w4a4", format)
    model = load(quantized)
    expected = Reference(model, quantized, source, "w4a4", torch.float32).logits()
    without = Reference(model, quantized, source, "w4a16", torch.float32).logits()
    # A sum that differs in its last bit may give another code, in rare elements.
    assert distance(logits(model), expected) <= 0.05 * distance(without, expected)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family, format", CASES)
def test_saving_gives_the_checkpoint_back(folders, tmp_path, family, scheme, format):
    quantized, _ = folders(family, scheme, format)
    load(quantized, torch.bfloat16).save_pretrained(tmp_path / "again")
    assert different(tensors(quantized), tensors(tmp_path / "again")) == []
    config = [json.loads((f / "config.json").read_text())["quantization_config"]
              for f in (quantized, tmp_path / "again")]
    assert config[0]["quant_method"] == config[1]["quant_method"]
    assert Schemes(config[1]).quantizes_input("any.module") == (scheme == "w4a4")
    load(tmp_path / "again")


def test_generating_twice_gives_the_same_text(folders):
    model = load(folders("llama", "w4a4")[0], torch.bfloat16)
    first, second = (model.generate(TOKENS[:1, :5], max_new_tokens=12, do_sample=False)
                     for _ in range(2))
    assert torch.equal(first, second) and first.shape[1] == 17


def test_generation_streams(folders):
    model = load(folders("llama")[0], torch.bfloat16)

    class Pieces(transformers.generation.streamers.BaseStreamer):
        pieces = []

        def put(self, value):
            self.pieces.append(value)

        def end(self):
            self.pieces.append(None)

    streamer = Pieces()
    model.generate(TOKENS[:1, :5], max_new_tokens=6, do_sample=False, streamer=streamer)
    assert len(streamer.pieces) == 8 and streamer.pieces[-1] is None


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family", ("llama", "qwen3_moe"))
def test_compiles_without_a_break(folders, family, scheme):
    model = load(folders(family, scheme)[0])
    eager = logits(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert distance(logits(compiled), eager) <= 1e-3 * float(eager.std())


def test_packed_weights_are_all_that_is_held(folders):
    quantized, _ = folders("llama")
    model = load(quantized, torch.bfloat16)
    held = sum(b.numel() * b.element_size() for m in ours(model).values() for b in m.buffers())
    # 9 bytes for 16 elements, rows in panels of 16; a global scale for each row where layers are one.
    bound = sum(-(-m.out_features // 16) * 16 * (m.in_features * 9 // 16 + 4) + 16
                for m in ours(model).values())
    assert held <= bound
    assert not any(list(m.parameters()) for m in ours(model).values())


def test_moving_and_casting_keep_the_weights(folders):
    model = load(folders("llama", "w4a4")[0], torch.bfloat16)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    model.to(torch.float32)
    of_nvfp4 = {name for name, tensor in before.items() if "_scale" in name or tensor.dtype == torch.uint8}
    assert of_nvfp4 and not of_nvfp4 & set(different(before, model.state_dict()))
    logits(model)


def test_a_state_dict_loads_again(folders):
    quantized = folders("qwen3_moe", "w4a4")[0]
    model, other = load(quantized), load(quantized)
    expected = logits(model)
    state = model.state_dict()
    for module in ours(other).values():
        for buffer in module.buffers():
            buffer.view(-1).view(torch.uint8).zero_()
    other.load_state_dict(state)
    assert torch.equal(logits(other), expected)


def test_layers_of_one_product_keep_their_scales(folders, tmp_path):
    """Global scales are each layer's own; inputs are quantized with the largest input scale."""
    quantized, source = folders("llama", "w4a4")

    def edit(t):
        for name in [n for n in t if n.endswith(("v_proj.weight_scale_2", "up_proj.weight_scale_2"))]:
            t[name] = t[name] * 1.5
        for name in [n for n in t if n.endswith(("q_proj.input_scale", "up_proj.input_scale"))]:
            t[name] = t[name] / 3
    folder = damaged(quantized, tmp_path / "differ", edit)
    model = load(folder)
    expected = Reference(model, folder, source, "w4a4", torch.float32).logits()
    before = Reference(model, quantized, source, "w4a4", torch.float32).logits()
    assert distance(logits(model), expected) <= 0.05 * distance(before, expected)


# --- quantized while loading ----------------------------------------------------------------------


@pytest.mark.parametrize("family", ("llama", "mixtral"))
def test_quantizing_while_loading_equals_the_command(folders, tmp_path, family):
    source = folders(family)[1]
    nvfp4.quantize_checkpoint(source, tmp_path / "command", scheme="w4a4", method="max")
    model = load(source, torch.bfloat16, quantization_config=backend.Nvfp4Config("w4a4", "max"))
    assert len(ours(model)) == len(ours(load(tmp_path / "command")))
    model.save_pretrained(tmp_path / "saved")
    assert different(tensors(tmp_path / "command"), tensors(tmp_path / "saved")) == []
    assert torch.equal(logits(load(tmp_path / "saved")), logits(load(tmp_path / "command")))


def test_what_was_quantized_while_loading_can_be_kept(folders, tmp_path, monkeypatch):
    source = folders("llama")[1]
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    model = load(source, quantization_config=backend.Nvfp4Config("w4a16", ignore=["*.down_proj"]))
    assert not list((tmp_path / "temporary").iterdir())
    assert len(ours(model)) == 12
    kept = load(source, quantization_config=backend.Nvfp4Config(
        "w4a16", ignore=["*.down_proj"], keep=tmp_path / "kept"))
    assert torch.equal(logits(load(tmp_path / "kept")), logits(kept))
    assert torch.equal(logits(model), logits(kept))


def test_what_cannot_be_quantized_while_loading_is_named(folders):
    quantized, source = folders("llama")
    with pytest.raises(nvfp4.InvalidValueError, match="method = 'nonsense'"):
        load(source, quantization_config=backend.Nvfp4Config(method="nonsense"))
    with pytest.raises(nvfp4.InvalidValueError, match="bits: no such option"):
        backend.Nvfp4Config(bits=3)


# --- trained on top -------------------------------------------------------------------------------


class Lora(torch.nn.Module):
    """y = base(x) + x · Aᵀ · Bᵀ, of rank 4; only A and B learn."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = torch.nn.Parameter(torch.randn(4, base.in_features) * base.in_features ** -0.5)
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, 4))

    def forward(self, x):
        return self.base(x) + (x.float() @ self.a.T @ self.b.T).to(x.dtype)


def losses_of_training(model, steps):
    torch.manual_seed(3)
    model.requires_grad_(False)
    for name, module in list(model.named_modules()):
        if name.endswith(("q_proj", "v_proj", "o_proj")):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Lora(module))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(TOKENS, labels=TOKENS).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("family, steps", (("llama", 50), ("qwen3_moe", 20)))
def test_lora_trains_as_over_decoded_weights(folders, tmp_path, family, steps):
    quantized, _ = folders(family)
    nvfp4.convert(quantized, tmp_path / "plain", to="bf16")
    mine = losses_of_training(load(quantized, torch.bfloat16), steps)
    plain = losses_of_training(load(tmp_path / "plain", torch.bfloat16), steps)
    assert plain[-1] < 0.95 * plain[0]
    assert abs(mine[-1] - plain[-1]) <= 0.02 * plain[-1]


def test_peft_wraps_packed_layers(folders):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model = load(folders("llama")[0], torch.bfloat16)
    expected = logits(model)
    tuned = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "down_proj"], r=4))
    assert torch.equal(logits(tuned), expected)
    tuned(TOKENS, labels=TOKENS).loss.backward()
    gradients = [p.grad for n, p in tuned.named_parameters() if "lora_B" in n]
    assert len(gradients) == 4 and all(float(g.abs().max()) > 0 for g in gradients)


# --- what is registered ---------------------------------------------------------------------------


def test_unregister_puts_everything_back():
    backend.unregister()
    plain = (dict(auto.AUTO_QUANTIZER_MAPPING), dict(auto.AUTO_QUANTIZATION_CONFIG_MAPPING))
    try:
        assert "modelopt" not in plain[0] and "modelopt" not in plain[1]
        assert plain[0]["compressed-tensors"].__name__ == "CompressedTensorsHfQuantizer"
        backend.register()
        assert auto.AUTO_QUANTIZER_MAPPING["nvfp4"] is plain[0]["nvfp4"]  # transformers' own
        backend.register()  # once is enough
        backend.unregister()
        assert plain == (auto.AUTO_QUANTIZER_MAPPING, auto.AUTO_QUANTIZATION_CONFIG_MAPPING)
        backend.unregister()
    finally:
        backend.register()


def of_compressed_tensors(to, weights, format):
    """A checkpoint of another kind, made by compressed-tensors itself."""
    quantization = pytest.importorskip("compressed_tensors.quantization",
                                       reason="compressed-tensors is not installed")
    from compressed_tensors.compressors import ModelCompressor

    config = quantization.QuantizationConfig.model_validate(dict(
        config_groups={"group_0": dict(targets=["Linear"], weights=weights)}, ignore=["lm_head"],
        quant_method="compressed-tensors", format=format, quantization_status="frozen"))
    torch.manual_seed(1)
    model = FAMILIES["llama"]().to(torch.bfloat16)
    model.save_pretrained(to)
    quantization.apply_quantization_config(model, config)
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            blocks = module.weight.reshape(*module.weight_scale.shape, -1)
            module.weight_scale.data = blocks.abs().amax(-1) / (2 ** (weights["num_bits"] - 1) - 1)
    ModelCompressor(config).compress_model(model)
    save_file({name: t.contiguous() for name, t in model.state_dict().items()}, to / "model.safetensors",
              metadata={"format": "pt"})
    described = json.loads((to / "config.json").read_text())
    described["quantization_config"] = {**json.loads(config.model_dump_json()),
                                        "quantization_status": "compressed"}
    (to / "config.json").write_text(json.dumps(described))


@pytest.mark.parametrize("weights, format", [
    (dict(num_bits=8, type="float", strategy="channel", symmetric=True), "float-quantized"),
    (dict(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True), "pack-quantized"),
])
def test_other_kinds_of_compressed_tensors_load_as_before(tmp_path, weights, format):
    of_compressed_tensors(tmp_path, weights, format)
    model = load(tmp_path)
    with_ours, classes = logits(model), [type(m) for m in model.modules()]
    assert type(model.hf_quantizer).__name__ == "CompressedTensorsHfQuantizer"
    backend.unregister()
    try:
        before = load(tmp_path)
        assert torch.equal(logits(before), with_ours)
        assert [type(m) for m in before.modules()] == classes
    finally:
        backend.register()


# --- what is refused ------------------------------------------------------------------------------


LAYER = "model.layers.0.mlp.down_proj"


def damaged(folder, to, edit):
    """A copy of a checkpoint, its tensors changed by edit(tensors)."""
    to.mkdir()
    for file in folder.glob("*.json"):
        (to / file.name).write_bytes(file.read_bytes())
    stored = tensors(folder)
    edit(stored)
    save_file(stored, to / "model.safetensors", metadata={"format": "pt"})
    return to


@pytest.mark.parametrize("edit, message", [
    (lambda t: t.pop(f"{LAYER}.weight_scale"),
     f"tensor '{LAYER}.weight': no '{LAYER}.weight_scale' beside it"),
    (lambda t: t.pop(f"{LAYER}.weight_scale_2"), f"no '{LAYER}.weight_scale_2' beside it"),
    (lambda t: t.pop(f"{LAYER}.weight"), "no codes beside it"),
    (lambda t: t.update({f"{LAYER}.weight_scale": t[f"{LAYER}.weight_scale"][:, :-1].contiguous()}),
     r"F8_E4M3 \[128, 21\], must be F8_E4M3 \[128, 22\], one for each 16 codes"),
    (lambda t: t.update({f"{LAYER}.weight_scale": t[f"{LAYER}.weight_scale"].float()}),
     r"F32 \[128, 22\], must be F8_E4M3"),
    (lambda t: t.update({f"{LAYER}.weight_scale_2": torch.ones(3)}),
     "the weight scale must be F32 with 1 element"),
    (lambda t: t.update({f"{LAYER}.weight_scale_2": torch.tensor(float("nan"))}),
     "nan, must be positive and finite"),
    (lambda t: [t.update({f"{LAYER}.{end}": t[f"{LAYER}.{end}"][:64].contiguous()})
                for end in ("weight", "weight_scale")],
     r"\[64, 352\], the model has \[128, 352\]"),
    (lambda t: t.update({f"{LAYER}.weight": t[f"{LAYER}.weight"].view(torch.int8)}),
     "no NVFP4 weight"),
    (lambda t: t[f"{LAYER}.weight_scale"].view(torch.uint8)[3].fill_(0x7F), f"{LAYER}: .* = 0x7F, must be at most 0x7E"),
])
def test_broken_checkpoints_are_named(folders, tmp_path, edit, message):
    folder = damaged(folders("llama")[0], tmp_path / "broken", edit)
    with pytest.raises(nvfp4.Error, match=message):
        transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_other_algorithms_are_refused(folders, tmp_path):
    folder = damaged(folders("llama")[0], tmp_path / "other", lambda t: None)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["quant_algo"] = "NVFP4_AWQ"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(nvfp4.UnsupportedError, match="'NVFP4_AWQ' of .*, must be NVFP4 or W4A16_NVFP4"):
        transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_groups_of_other_formats_are_named():
    config = {"quant_method": "compressed-tensors", "config_groups": {
        "a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}, "b": None}}
    with pytest.raises(nvfp4.UnsupportedError, match="layer has NVFP4 weights, and its group"):
        Schemes(config).quantizes_input("layer")
    assert not is_loaded_by_ours(config)


def test_a_dtype_without_kernels_is_named_first(folders, monkeypatch):
    monkeypatch.setattr(transformers.PreTrainedModel, "_load_pretrained_model", None)
    with pytest.raises(nvfp4.Error, match="float64"):
        load(folders("llama")[0], torch.float64)


def test_a_missing_expert_is_named(folders, tmp_path):
    def edit(t):
        for name in [n for n in t if "layers.1.mlp.experts.2.up_proj" in n]:
            del t[name]
    folder = damaged(folders("qwen3_moe")[0], tmp_path / "broken", edit)
    with pytest.raises(nvfp4.FormatError, match="7 NVFP4 weights, must be 8, of 4 experts"):
        transformers.AutoModelForCausalLM.from_pretrained(folder)
