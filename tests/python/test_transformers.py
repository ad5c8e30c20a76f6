"""Models that transformers saved, quantized here to compressed-tensors, loaded by transformers.

Both sides of each comparison run the same code of transformers: on the quantized checkpoint, which
compressed-tensors decompresses, and on the BF16 one that nvfp4.convert made of it. Where the weights
agree, the logits must agree bit for bit.
"""

import json
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

from compressed_tensors.quantization.lifecycle.forward import forward_quantize
from safetensors import safe_open

import nvfp4
from models_of_families import FAMILIES, TOKENS

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

#: transformers 5 stacks experts in one parameter; transformers 4 has a Linear for each.
STACKS_EXPERTS = int(transformers.__version__.split(".")[0]) >= 5
#: transformers 4 rounds weight_global_scale to the dtype of the model.
ROUNDS_GLOBAL_SCALE = not STACKS_EXPERTS
LEAVES_OUT = (f"transformers {transformers.__version__} leaves weight_global_scale of stacked experts "
              "out (huggingface/transformers#48371); test_transformers_releases.py does it")
SCHEMES = ("w4a16", "w4a4")
INPUT_AMAX = 10.5  # 2688 / 256
DIVISOR = 2.0**14  # of every weight in a levelled model


pytestmark = pytest.mark.usefixtures("without_our_backend")


MODELS = {name: FAMILIES[name] for name in ("llama", "mixtral", "qwen3_moe")}
DENSE, MOE = ("llama",), ("mixtral", "qwen3_moe")


def level(model):
    """Gives every matrix of the layers the amax 1536 / DIVISOR. Global scales are then powers of two,
    and every product of code and scales is a BF16 number."""
    for name, p in model.named_parameters():
        if p.ndim >= 2 and ".layers." in name:
            limit = 1536 / DIVISOR
            p.data.clamp_(-limit, limit)
            p.data[..., 0, 0] = limit
            if p.ndim == 3:  # gate and up
                p.data[:, p.shape[1] // 2, 0] = limit


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(name, scheme, levelled) -> (quantized, BF16) folders, made once."""
    made = {}

    def get(name, scheme, levelled):
        key = name, scheme, levelled
        if key not in made:
            at = tmp_path_factory.mktemp("model")
            torch.manual_seed(1)
            model = MODELS[name]().to(torch.bfloat16)
            if levelled:
                level(model)
            model.save_pretrained(at / "source")
            (at / "amax.json").write_text(json.dumps({"*": INPUT_AMAX}))
            nvfp4.quantize_checkpoint(at / "source", at / "quantized", scheme=scheme,
                                      format="compressed-tensors", input_amax=at / "amax.json")
            nvfp4.convert(at / "quantized", at / "plain", to="bf16")
            made[key] = at / "quantized", at / "plain"
        return made[key]

    return get


def load(folder):
    """The model as a user loads it, decompressed: compressed-tensors does that in the first run."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"] and not info["error_msgs"]
    unexpected = {key.rsplit(".", 1)[1] for key in info["unexpected_keys"]}
    # The input of stacked experts stays BF16; compressed-tensors 0.20 finds no cache in attentions of transformers 5.24.
    assert unexpected <= {"input_global_scale", "k_scale", "v_scale"}
    model.eval()
    logits(model)
    return model


def logits(model):
    with torch.no_grad():
        return model(TOKENS).logits


def plain_parameters(model):
    return {name: p for name, p in model.named_parameters()
            if not name.endswith(("_scale", "_packed"))}


def quantized_linears(model):
    return {name: module for name, module in model.named_modules()
            if getattr(module, "quantization_scheme", None) is not None}


def without_activations(model):
    """Multiplies with BF16 activations, as weight-only checkpoints do."""
    for module in quantized_linears(model).values():
        module.quantization_enabled = False
    return model


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", MODELS)
def test_weights_and_logits_equal_our_dequantized_model(folders, name, scheme):
    if name in MOE and STACKS_EXPERTS:
        pytest.skip(LEAVES_OUT)
    quantized, plain = folders(name, scheme, True)
    theirs, ours = load(quantized), load(plain)
    expected = plain_parameters(ours)
    assert plain_parameters(theirs).keys() == expected.keys()
    for key, p in plain_parameters(theirs).items():
        assert torch.equal(p, expected[key]), key
    assert len(quantized_linears(theirs)) >= 14
    without_activations(theirs)
    assert torch.equal(logits(theirs), logits(ours))


@pytest.mark.skipif(not STACKS_EXPERTS, reason="transformers 4 does not stack experts")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", MOE)
def test_stacked_experts_lack_only_the_global_scale(folders, name, scheme):
    """huggingface/transformers#48371: without it, experts are DIVISOR times too large. Should this
    fail with a newer transformers, it has been fixed there: the test above will do."""
    quantized, plain = folders(name, scheme, True)
    theirs, ours = load(quantized), load(plain)
    expected = plain_parameters(ours)
    stacked = 0
    for key, p in plain_parameters(theirs).items():
        if ".experts." in key:
            stacked += 1
            assert torch.equal(p.data, expected[key] * DIVISOR), key
            p.data /= DIVISOR
        assert torch.equal(p, expected[key]), key
    assert stacked == 2 * 2
    without_activations(theirs)
    assert torch.equal(logits(theirs), logits(ours))


def sensitivity(ours, theirs, worst):
    """For each of the logits `worst`: Σ |∂logit/∂w| · |Δw|, gradients half-way between the models.
    There the error of this first order is of the third, and the logits differ by no more."""
    # Module.double: transformers refuses to cast a quantized model.
    torch.nn.Module.double(ours)
    expected, deltas = plain_parameters(ours), {}
    for key, p in plain_parameters(theirs).items():
        deltas[key] = p.double() - expected[key].data
        expected[key].data += deltas[key] / 2
    flat = ours(TOKENS).logits.flatten()
    bounds = []
    for index in worst:
        gradients = torch.autograd.grad(flat[index], list(expected.values()), retain_graph=True)
        bounds.append(sum((g * deltas[key]).abs().sum()
                          for key, g in zip(expected, gradients)).item())
    for key, p in expected.items():
        p.data -= deltas[key] / 2
    return torch.tensor(bounds, dtype=torch.float64)


@pytest.mark.parametrize("name", MODELS)
def test_any_global_scale_stays_within_the_bound(folders, name):
    """compressed-tensors divides where we multiply: before it is rounded to BF16 a weight is off by
    at most 4 · 2^-24 of itself; and by 2^-8 more if the divisor is rounded to BF16 (transformers 4).
    Then one BF16 rounding each: 2^-8 twice."""
    if name in MOE and STACKS_EXPERTS:
        pytest.skip(LEAVES_OUT)
    quantized, plain = folders(name, "w4a16", False)
    theirs, ours = load(quantized), load(plain)
    expected = plain_parameters(ours)
    relative = 2 * 2.0**-8 + (2.0**-8 if ROUNDS_GLOBAL_SCALE else 4 * 2.0**-24)
    for key, p in plain_parameters(theirs).items():
        distance = (p.double() - expected[key].double()).abs()
        assert (distance <= 1.01 * relative * expected[key].double().abs()).all(), key
    torch.nn.Module.double(theirs), torch.nn.Module.double(ours)
    distance = (logits(theirs) - logits(ours)).abs().flatten()
    worst = distance.topk(12).indices
    bound = sensitivity(ours, theirs, worst.tolist())
    assert (distance[worst] <= 1.01 * bound).all(), (distance[worst], bound)
    assert bound.max() < 0.25 * logits(ours).abs().max()  # a wrong scale must fail


@pytest.mark.parametrize("name", MODELS)
def test_activations_are_quantized_to_the_same_values(folders, name):
    """W4A4 in compressed-tensors: scales for each 16 on the fly, the global one from the file."""
    model = load(folders(name, "w4a4", True)[0])
    torch.nn.Module.float(model)
    generator = torch.Generator().manual_seed(5)
    linears = quantized_linears(model)
    for module in linears.values():
        x = torch.randn(7, module.in_features, generator=generator)
        assert module.input_global_scale == 2688 / INPUT_AMAX
        multiplier = 1 / module.input_global_scale
        quantized = nvfp4.quantize(x, "max", global_scale=multiplier).dequantize(torch.float32)
        theirs = forward_quantize(module, x, "input", module.quantization_scheme.input_activations)
        assert torch.equal(quantized, theirs)
        with torch.no_grad():
            assert torch.equal(module(x), torch.nn.functional.linear(quantized, module.weight))
    assert len(linears) >= 8


def test_what_transformers_loads_is_what_safetensors_reads(folders):
    quantized, _ = folders("llama", "w4a4", True)
    with safe_open(quantized / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
        assert file.get_tensor("model.layers.0.mlp.up_proj.weight_global_scale") == DIVISOR
    assert "lm_head.weight" in names and "model.layers.0.mlp.up_proj.weight_packed" in names
