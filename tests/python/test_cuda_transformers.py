"""nvfp4.transformers on a GPU: the same models as on the CPU, CUDA graphs, experts routed, training."""

import copy
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
    pytest.skip("no GPU from sm_80 on", allow_module_level=True)

import torch._inductor.config

import nvfp4
import nvfp4.transformers as backend
from models_of_families import FAMILIES, TOKENS
from nvfp4.torch import Nvfp4Experts, prepare
from nvfp4.torch.experts import by_expert, by_row
from test_nvfp4_transformers import (Reference, distance, folders, load, logits, ours, tensors)
from test_torch_quantize import different

ON_GPU = TOKENS.cuda()
FEW = ("llama", "qwen2", "mixtral", "qwen3_moe")


def on_gpu(folder, **options):
    return load(folder, torch.bfloat16, device_map="cuda", **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_alone_give_what_decoded_weights_give(folders, family):
    quantized, source = folders(family, "w4a16")
    model = on_gpu(quantized)
    exact = Reference(model, quantized, source, "w4a16", torch.float64).logits()
    plain = Reference(model, quantized, source, "w4a16", torch.bfloat16).logits()
    # Sums are FP32; what is rounded is BF16 on both sides, decoded weights too on the other.
    assert distance(logits(model, ON_GPU).cpu(), exact) <= 1.5 * distance(plain, exact)


@pytest.mark.parametrize("scheme", ("w4a16", "w4a4"))
@pytest.mark.parametrize("family", FEW)
def test_each_layer_agrees_with_the_cpu(folders, family, scheme):
    """Layer by layer, on the same x: over a whole model in BF16 a rounding of an input changes codes."""
    quantized, _ = folders(family, scheme)
    on_cpu, model = load(quantized, torch.bfloat16), on_gpu(quantized)
    torch.manual_seed(1)
    for name, module in ours(on_cpu).items():
        other = model.get_submodule(name)
        with torch.no_grad():
            if isinstance(module, Nvfp4Experts):
                x = torch.randn(40, module.sizes["gate_up"][2], dtype=torch.bfloat16)
                given = x, torch.randint(0, 4, (40, 2)), torch.rand(40, 2, dtype=torch.bfloat16)
                bound = 0.05  # what goes into down may have another code where SwiGLU was rounded
            else:
                given, bound = (torch.randn(40, module.in_features, dtype=torch.bfloat16),), 0.01
            expected, got = module(*given), other(*(t.cuda() for t in given)).cpu()
        assert distance(got, expected) <= bound * float(expected.float().std()), name


@pytest.mark.parametrize("scheme", ("w4a16", "w4a4"))
@pytest.mark.parametrize("family", ("mixtral", "qwen3_moe"))
def test_routed_and_sorted_experts_agree(folders, family, scheme):
    model = on_gpu(folders(family, scheme)[0])
    experts = next(m for m in model.modules() if isinstance(m, Nvfp4Experts))
    x = torch.randn(3, experts.sizes["gate_up"][2], device="cuda", dtype=torch.bfloat16)
    ids = torch.tensor([[0, 3], [2, 1], [3, 2]], device="cuda")
    with torch.no_grad():
        routed, in_order = (way(x, ids, *experts._arguments())
                            for way in (by_row, by_expert))
    assert distance(routed, in_order) <= 0.05 * float(in_order.float().std())


@pytest.mark.parametrize("pdl", (False, True))
@pytest.mark.parametrize("scheme", ("w4a16", "w4a4"))
@pytest.mark.parametrize("family", FEW)
def test_generation_compiles_and_captures(folders, family, scheme, pdl):
    """A static cache: transformers compiles the decoding step itself, with CUDA graphs. pdl: compiled kernels
    start before ours have ended, and ours before they have."""
    model = on_gpu(folders(family, scheme)[0])
    options = dict(min_new_tokens=12, max_new_tokens=12, do_sample=False)
    plain = model.generate(ON_GPU[:1, :5], **options)
    with torch._inductor.config.patch({"triton.enable_pdl": pdl}):
        static = [model.generate(ON_GPU[:1, :5], cache_implementation="static", **options)
                  for _ in range(2)]
    assert torch.equal(*static)
    assert plain.shape == static[0].shape
    torch._dynamo.reset()


@pytest.mark.parametrize("family", ("llama", "qwen3_moe"))
def test_a_step_can_be_captured(folders, family):
    """Nothing waits for the GPU; replaying gives what running gives."""
    model = on_gpu(folders(family, "w4a4")[0])
    token = ON_GPU[:1, :3].clone()
    with torch.no_grad():
        expected = model(token, use_cache=False).logits.clone()
        for _ in range(2):
            model(token, use_cache=False)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(token, use_cache=False).logits
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(out, expected)


@pytest.mark.parametrize("family", FEW)
def test_saving_and_moving_keep_the_checkpoint(folders, tmp_path, family):
    quantized = folders(family, "w4a4")[0]
    model = on_gpu(quantized)
    for step in range(2):
        model.save_pretrained(tmp_path / str(step))
        assert different(tensors(quantized), tensors(tmp_path / str(step))) == []
        model.cpu()  # packed for the CPU now
    logits(model)
    assert not any(b.is_cuda for m in ours(model).values() for b in m.buffers())


def test_float32_is_refused_by_name(folders):
    with pytest.raises(nvfp4.Error, match="(?i)f(loat)?(p)?32"):
        logits(load(folders("llama")[0], torch.float32, device_map="cuda"), ON_GPU)


def test_lora_gradients(folders):
    model = on_gpu(folders("qwen3_moe", "w4a16")[0])
    embedded = model.get_input_embeddings()(ON_GPU).detach().requires_grad_()
    model(inputs_embeds=embedded).logits.float().square().mean().backward()
    assert embedded.grad.isfinite().all() and float(embedded.grad.abs().max()) > 0
    assert backend.Nvfp4Linear


@pytest.mark.parametrize("method, activations", ((None, None), ("mse", "mse"), ("max", "max")))
@pytest.mark.parametrize("family", ("llama", "qwen3_moe"))
def test_training_rounds_to_the_bits_of_the_cpu(folders, family, method, activations):
    quantized, source = folders(family, "w4a4")
    plain = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        on_cpu = prepare(plain, quantized, method=method, activations=activations)
        for parameter in on_cpu.parameters():
            parameter.mul_(1.1)
        model = copy.deepcopy(on_cpu).cuda()
        for name, layer in on_cpu.named_modules():
            for part in getattr(layer, "parts", ()):
                other = model.get_submodule(name)
                assert torch.equal(other.weight_of(part).cpu(), layer.weight_of(part)), (name, part)
                x = torch.randn(5, layer.get_parameter(part).shape[-1])
                assert torch.equal(other.input_of(part, x.cuda()).cpu(), layer.input_of(part, x)), (name, part)
