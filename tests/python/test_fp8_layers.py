"""nvfp4.transformers: checkpoints whose attention is FP8 or MXFP8 and whose MLPs are NVFP4."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import nvfp4
import nvfp4.transformers  # noqa: F401 (registers the quantizers)
from nvfp4.transformers.fp8 import Fp8Linear, kind_of_scale
from test_nvfp4_transformers import distance, tensors
from test_torch_quantize import different

CASES = [(action, format) for action in ("fp8", "fp8_channel", "fp8_block", "mxfp8")
         for format in ("modelopt", "compressed-tensors") if (action, format) != ("fp8_block", "modelopt")]
KINDS = {"fp8": "tensor", "fp8_channel": "row", "fp8_block": "block", "mxfp8": "mx"}
TOKENS = torch.arange(40).reshape(2, 20)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """mixed(action, format): the folder of a Llama, and that of its weights dequantized."""
    at, made = tmp_path_factory.mktemp("mixed"), {}
    torch.manual_seed(3)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=256, tie_word_embeddings=False)).to(torch.bfloat16).save_pretrained(at / "bf16")

    def get(action, format):
        if (action, format) not in made:
            folder = at / f"{action}-{format}"
            (at / "recipe.yaml").write_text(f"scheme: w4a16\nrules:\n  - kind: attention\n    action: {action}\n")
            nvfp4.quantize_checkpoint(at / "bf16", folder, recipe=str(at / "recipe.yaml"), format=format,
                                      **({"input_amax": at / "amax.json"} if action == "fp8" else {}))
            nvfp4.convert(folder, at / f"plain-{folder.name}", to="bf16")
            made[action, format] = folder, at / f"plain-{folder.name}"
        return made[action, format]

    (at / "amax.json").write_text('{"*": 4.0}')
    return get


def loaded(folder, dtype=torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def logits(model):
    with torch.no_grad():
        return model(TOKENS.to(model.device)).logits.float().cpu()


def fp8_layers(model):
    return {name: m for name, m in model.named_modules() if isinstance(m, Fp8Linear)}


@pytest.mark.parametrize("name", ("weight_scale", "input_scale"))
def test_scales_that_are_not_positive_are_named(mixed, name):
    layer, *_ = fp8_layers(loaded(mixed("fp8", "modelopt")[0])).values()
    layer.unpack()
    layer._buffers[name].fill_(-0.5)
    with pytest.raises(nvfp4.FormatError, match=f"tensor '{layer.checkpoint_name}.{name}': -0.5, must be positive"):
        layer.pack()


@pytest.mark.parametrize("action, format", CASES)
def test_logits_are_those_of_decoded_weights(mixed, action, format):
    folder, plain = mixed(action, format)
    model = loaded(folder)
    assert {m.kind for m in fp8_layers(model).values()} == {KINDS[action]} and len(fp8_layers(model)) == 8
    expected = logits(loaded(plain))
    # Inputs in E4M3 have 2.7 % of error; the decoded folder has its weights rounded to BF16.
    bound = 0.06 if action in ("fp8", "fp8_channel") else 0.01
    assert distance(logits(model), expected) <= bound * float(expected.std())


@pytest.mark.parametrize("action, format", CASES)
def test_a_layer_multiplies_the_stored_codes(mixed, action, format):
    folder, _ = mixed(action, format)
    stored = tensors(folder)
    for name, layer in fp8_layers(loaded(folder)).items():
        codes, scale = stored[f"{name}.weight"].float(), stored[f"{name}.weight_scale"]
        factors = torch.exp2(scale.float() - 127).repeat_interleave(32, 1) if action == "mxfp8" else scale.float()
        if action == "fp8_block":
            factors = factors.repeat_interleave(128, 0).repeat_interleave(128, 1)[:codes.shape[0], :codes.shape[1]]
        elif action == "fp8_channel":
            factors = factors.reshape(-1, 1)
        x = torch.randn(3, layer.in_features)
        rounded = x
        if layer.quantizes_input:
            of_x = stored.get(f"{name}.input_scale", x.abs().amax(1, keepdim=True) / 448)
            rounded = (x / of_x).clamp(-448, 448).to(torch.float8_e4m3fn).float() * of_x
        torch.testing.assert_close(layer(x), rounded @ (codes * factors).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("action, format", CASES)
def test_saving_keeps_the_checkpoint(mixed, tmp_path, action, format):
    folder, _ = mixed(action, format)
    model = loaded(folder, torch.bfloat16)
    model.save_pretrained(tmp_path)
    before = tensors(folder)
    quantized = {name for name in before if "self_attn" in name}
    assert quantized and not quantized & set(different(before, tensors(tmp_path)))


@pytest.mark.parametrize("dtype, shape, kind", [
    ("F32", (), "tensor"), ("F32", (1,), "tensor"), ("BF16", (256, 1), "row"), ("F32", (256,), "row"),
    ("F32", (2, 3), "block"), ("U8", (256, 9), "mx"), ("U8", (256, 18), None), ("F32", (256, 2), None), ("I8", (), None)])
def test_kinds_of_scales(dtype, shape, kind):
    assert kind_of_scale(dtype, shape, 256, 288) == kind


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9), reason="no GPU from sm_89 on")
@pytest.mark.parametrize("action, format", CASES)
def test_a_gpu_multiplies_codes(mixed, action, format):
    if not any(d["available"] for d in nvfp4.devices()):
        pytest.skip("a build without CUDA")
    folder, _ = mixed(action, format)
    on_cpu, model = loaded(folder, torch.bfloat16), loaded(folder, torch.bfloat16).cuda()
    for name, layer in fp8_layers(model).items():
        assert layer.uses_fp8 == (action in ("fp8", "fp8_channel")) and (layer.decoded is None) == layer.uses_fp8
        x = torch.randn(5, layer.in_features, dtype=torch.bfloat16)
        expected = on_cpu.get_submodule(name)(x)
        assert distance(layer(x.cuda()).cpu(), expected) <= 0.01 * float(expected.float().std())
