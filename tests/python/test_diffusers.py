"""nvfp4.diffusers: checkpoints of tiny transformers of diffusers, run on our kernels."""

import json
import os
import subprocess

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from safetensors.torch import save_file

import nvfp4
import nvfp4.diffusers as backend
from diffusers.quantizers import auto
from command import SCRIPT
from nvfp4.diffusers import ask
from nvfp4.transformers import Nvfp4Linear
from nvfp4.transformers.fp8 import Fp8Linear
from test_nvfp4_transformers import distance, quantized_input, tensors, weight_of
from test_torch_quantize import different

diffusers.utils.logging.set_verbosity_error()

HEADS = dict(num_attention_heads=4, attention_head_dim=32)
JOINT = dict(HEADS, joint_attention_dim=64)
TEXT, POOLED, TIME = torch.arange(6 * 64).reshape(1, 6, 64).sin(), torch.arange(64.)[None].cos(), torch.tensor([400.])
GRID = torch.cartesian_prod(*[torch.arange(4)] * 2)


def ids(grid, axes):
    return torch.nn.functional.pad(grid.float(), (1, axes - grid.shape[1] - 1))


#: class -> (configuration, shape of the latents, other inputs)
MODELS = {
    "SD3Transformer2DModel": (
        dict(JOINT, sample_size=8, in_channels=4, out_channels=4, num_layers=2, caption_projection_dim=128,
             pooled_projection_dim=64, pos_embed_max_size=8), (1, 4, 8, 8),
        dict(encoder_hidden_states=TEXT, pooled_projections=POOLED, timestep=TIME)),
    "FluxTransformer2DModel": (
        dict(JOINT, in_channels=16, num_layers=1, num_single_layers=1, pooled_projection_dim=64,
             axes_dims_rope=(8, 12, 12)), (1, 16, 16),
        dict(encoder_hidden_states=TEXT, pooled_projections=POOLED, timestep=TIME / 1000, img_ids=ids(GRID, 3),
             txt_ids=torch.zeros(6, 3))),
    "WanTransformer3DModel": (
        dict(HEADS, text_dim=64, freq_dim=64, ffn_dim=256, num_layers=2, rope_max_seq_len=16), (1, 16, 1, 8, 8),
        dict(encoder_hidden_states=TEXT, timestep=TIME)),
    "Flux2Transformer2DModel": (
        dict(JOINT, in_channels=16, num_layers=1, num_single_layers=1, timestep_guidance_channels=64,
             axes_dims_rope=(8, 8, 8, 8)), (1, 16, 16),
        dict(encoder_hidden_states=TEXT, timestep=TIME / 1000, guidance=torch.ones(1), img_ids=ids(GRID, 4),
             txt_ids=torch.zeros(6, 4))),
    "QwenImageTransformer2DModel": (
        dict(JOINT, in_channels=16, out_channels=4, num_layers=1, axes_dims_rope=(8, 12, 12)), (1, 16, 16),
        dict(encoder_hidden_states=TEXT, timestep=TIME / 1000, img_shapes=[(1, 4, 4)],
             encoder_hidden_states_mask=torch.ones(1, 6, dtype=torch.bool))),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """folders(name, **options of quantize): the folders of a quantized model and its source, made once."""
    at, made = tmp_path_factory.mktemp("diffusers"), {}

    def get(name, **options):
        key = name, json.dumps(options)
        if key not in made:
            source, to = at / name, at / f"{name}-{len(made)}"
            if not source.exists():
                torch.manual_seed(1)
                getattr(diffusers, name)(**MODELS[name][0]).bfloat16().save_pretrained(source)
            if options.get("scheme") == "w4a4":
                (at / "amax.json").write_text('{"*": 10.5}')
                options["input_amax"] = at / "amax.json"
            nvfp4.quantize_checkpoint(source, to, **options)
            made[key] = to, source
        return made[key]

    return get


def load(folder, dtype=torch.float32):
    name = json.loads((folder / "config.json").read_text())["_class_name"]
    model, info = getattr(diffusers, name).from_pretrained(folder, torch_dtype=dtype, output_loading_info=True)
    assert not any(info.values()), info
    return model


def ours(model):
    return {name: m for name, m in model.named_modules() if isinstance(m, Nvfp4Linear)}


def sample(model):
    """Returns latents after three Euler steps, in the dtype of the model."""
    _, shape, inputs = MODELS[type(model).__name__]
    cast = lambda value: value.to(model.dtype) if torch.is_tensor(value) and value.dtype == torch.float32 else value
    inputs = {name: cast(value) for name, value in inputs.items()}
    x = torch.arange(torch.Size(shape).numel()).reshape(shape).sin().to(model.dtype)
    with torch.no_grad():
        for _ in range(3):
            x = x - 0.3 * model(x, return_dict=False, **inputs)[0]
    return x


def plain(quantized, source, dtype, quantize_inputs=False):
    """Returns the source's model with decoded weights."""
    model, stored = load(source, dtype), tensors(quantized)
    names = {name.rpartition(".")[0] for name in stored if name.endswith(("weight_scale_2", "weight_global_scale"))}
    for name in names:
        linear = model.get_submodule(name)
        linear.weight.data = weight_of(stored, name).to(dtype)
        if quantize_inputs:
            linear.register_forward_pre_hook(lambda m, args: (quantized_input(args[0]),))
    return model


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("name", MODELS)
def test_steps_are_those_of_decoded_weights(folders, name, dtype):
    quantized, source = folders(name, scheme="w4a16")
    model = load(quantized, dtype)
    assert len(ours(model)) >= 10
    exact = sample(plain(quantized, source, torch.float64))
    # Sums of another order: as far from FP64 as PyTorch's own, and the difference varies.
    assert distance(sample(model), exact) <= 2 * distance(sample(plain(quantized, source, dtype)), exact)


@pytest.mark.parametrize("format", ("modelopt", "compressed-tensors"))
def test_w4a4_quantizes_inputs_with_the_stored_scale(folders, format):
    quantized, source = folders("SD3Transformer2DModel", scheme="w4a4", format=format)
    expected = sample(plain(quantized, source, torch.float32, quantize_inputs=True))
    without = sample(plain(quantized, source, torch.float32))
    # A sum that differs in its last bit may give another code, in rare elements.
    assert distance(sample(load(quantized)), expected) <= 0.05 * distance(without, expected)


@pytest.mark.parametrize("name", ("FluxTransformer2DModel", "WanTransformer3DModel"))
def test_saving_keeps_the_quantized_weights(folders, tmp_path, name):
    quantized, _ = folders(name, scheme="w4a4")
    model = load(quantized, torch.bfloat16)
    model.save_pretrained(tmp_path)
    before, after = tensors(quantized), tensors(tmp_path)
    assert before.keys() == after.keys()
    assert not any(n.rpartition(".")[0] in ours(model) and not n.endswith("bias") for n in different(before, after))
    config = [json.loads((folder / "config.json").read_text())["quantization_config"] for folder in (quantized, tmp_path)]
    assert config[0] == config[1]
    assert torch.equal(sample(load(tmp_path, torch.bfloat16)), sample(model))


def test_fp8_layers_beside_nvfp4(folders, tmp_path):
    (tmp_path / "recipe.yaml").write_text("scheme: w4a16\nrules:\n  - kind: attention\n    action: mxfp8\n")
    quantized, _ = folders("SD3Transformer2DModel", recipe=str(tmp_path / "recipe.yaml"))
    nvfp4.convert(quantized, tmp_path / "plain", to="bf16")
    model = load(quantized)
    assert len(ours(model)) == 6 and sum(isinstance(m, Fp8Linear) for m in model.modules()) == 15
    expected = sample(load(tmp_path / "plain"))
    # The folder of plain weights has them rounded to BF16.
    assert distance(sample(model), expected) <= 2**-7 * float(expected.std())


def test_a_pipeline_loads_quantized_parts(folders, tmp_path):
    name = "FluxTransformer2DModel"
    quantized, source = folders(name, scheme="w4a16")
    absent = dict.fromkeys(("vae", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2"))
    parts = dict(absent, scheduler=diffusers.FlowMatchEulerDiscreteScheduler())
    diffusers.FluxPipeline(transformer=load(source), **parts).save_pretrained(tmp_path)
    call = dict(prompt_embeds=TEXT, pooled_prompt_embeds=POOLED, height=64, width=64, num_inference_steps=2,
                output_type="latent", latents=torch.arange(256.).reshape(1, 16, 16).sin())
    as_an_argument = diffusers.FluxPipeline.from_pretrained(tmp_path, transformer=load(quantized), **absent)
    for file in quantized.iterdir():
        (tmp_path / "transformer" / file.name).write_bytes(file.read_bytes())
    in_the_folder = diffusers.FluxPipeline.from_pretrained(tmp_path, **absent)
    assert len(ours(in_the_folder.transformer)) == len(ours(as_an_argument.transformer)) == 17
    assert torch.equal(in_the_folder(**call).images, as_an_argument(**call).images)
    plain_weights = diffusers.FluxPipeline(transformer=plain(quantized, source, torch.float32), **parts)
    torch.testing.assert_close(in_the_folder(**call).images, plain_weights(**call).images, rtol=0, atol=1e-4)


def test_a_dtype_without_kernels_is_named(folders):
    with pytest.raises(nvfp4.Error, match="float64"):
        load(folders("SD3Transformer2DModel", scheme="w4a16")[0], torch.float64)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("format", ("modelopt", "compressed-tensors"))
def test_verify_asks_diffusers(folders, name, format):
    answer = ask.ask(str(folders(name, scheme="w4a16", format=format)[0]), "diffusers")
    assert (answer["verdict"], answer["tensors"]) == ("reads", {}), answer
    assert answer["version"].startswith(f"diffusers {diffusers.__version__} with `import nvfp4.diffusers`")


@pytest.mark.parametrize("config, verdict, text", [
    (dict(qk_norm="rms_norm"), "misreads", "not in the checkpoint, so they get random values, such as transformer_blocks.0"),
    (dict(num_layers=3), "refuses", "transformer_blocks.1"), (dict(in_channels=8), "refuses", "pos_embed.proj.weight"),
    (dict(_class_name="os"), "unknown", "no model 'os'"), (dict(_class_name=None), "refuses", "no _class_name"),
    (dict(_class_name="DDIMScheduler"), "unknown", "no model"), (dict(quantization_config=None), "refuses", "shape")])
def test_verdicts_on_other_configurations(folders, tmp_path, config, verdict, text):
    quantized, _ = folders("SD3Transformer2DModel", scheme="w4a16")
    for file in quantized.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    edited = json.loads((tmp_path / "config.json").read_text()) | config
    (tmp_path / "config.json").write_text(json.dumps(edited))
    answer = ask.ask(str(tmp_path), "diffusers")
    assert answer["verdict"] == verdict and text in answer["text"], answer


def test_the_command_asks_diffusers(folders):
    quantized, _ = folders("SD3Transformer2DModel", scheme="w4a16")
    run = subprocess.run([*SCRIPT, "verify", quantized, "--for", "diffusers", "--json"], capture_output=True)
    report = json.loads(run.stdout)["loaders"]["diffusers"]
    assert (run.returncode, report["verdict"]) == (0, "reads"), report


def test_exclusions_do_not_concern_diffusers(folders):
    quantized, _ = folders("FluxTransformer2DModel", scheme="w4a16")
    assert "single_transformer_blocks.0.proj_out.weight_scale" in tensors(quantized)
    assert nvfp4.verify(quantized)["errors"] == 0
    assert "import nvfp4.diffusers, diffusers, torch" in (quantized / "README.md").read_text()


def test_unregister_puts_everything_back():
    backend.unregister()
    tables = auto.AUTO_QUANTIZER_MAPPING, auto.AUTO_QUANTIZATION_CONFIG_MAPPING
    before = [dict(table) for table in tables]
    try:
        assert before[0]["modelopt"].__name__ == "NVIDIAModelOptQuantizer" and "compressed-tensors" not in before[0]
        backend.register()
        backend.register()  # once is enough
        assert all(table != held for table, held in zip(tables, before))
        backend.unregister()
        assert [dict(table) for table in tables] == before
    finally:
        backend.register()


def test_configurations_of_modelopt_itself_are_passed_on():
    own = dict(quant_method="modelopt", quant_type="FP8", modelopt_config={"quant_cfg": {}})
    config = auto.DiffusersAutoQuantizer.from_dict(own)
    assert type(config).__name__ == "NVIDIAModelOptConfig"
    assert type(auto.DiffusersAutoQuantizer.from_config(config)).__name__ == "NVIDIAModelOptQuantizer"
    ints = dict(quant_method="compressed-tensors", config_groups={"0": {"weights": dict(num_bits=4, type="int")}})
    with pytest.raises(nvfp4.UnsupportedError, match="'compressed-tensors' without NVFP4 weights"):
        auto.DiffusersAutoQuantizer.from_dict(ints)


LAYER = "transformer_blocks.0.ff.net.2"


@pytest.mark.parametrize("edit, message", [
    (lambda t: t.pop(f"{LAYER}.weight_scale"), f"no '{LAYER}.weight_scale' beside it"),
    (lambda t: t.update({f"{LAYER}.weight_scale_2": torch.tensor(-1.)}), "must be positive and finite"),
    (lambda t: [t.update({f"{LAYER}.{end}": t[f"{LAYER}.{end}"][:64].contiguous()}) for end in ("weight", "weight_scale")],
     r"\[64, 512\], the model has \[128, 512\]")])
def test_broken_checkpoints_are_named(folders, tmp_path, edit, message):
    quantized, _ = folders("SD3Transformer2DModel", scheme="w4a16")
    stored = tensors(quantized)
    edit(stored)
    save_file(stored, tmp_path / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((quantized / "config.json").read_bytes())
    with pytest.raises(nvfp4.Error, match=message):
        load(tmp_path)


@pytest.mark.parametrize("name", ["SD3Transformer2DModel", "FluxTransformer2DModel", "WanTransformer3DModel"])
def test_statistics_of_a_denoiser(tmp_path, folders, name):
    from nvfp4.calibrate import calibrate_module

    _, source = folders(name)
    model, seen = load(source), {}
    _, shape, inputs = MODELS[name]
    latents = torch.randn(2, *shape, generator=torch.Generator().manual_seed(2))
    for layer, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(
                lambda _, args, layer=layer: seen.setdefault(layer, []).append(args[0].flatten(0, -2)))
    statistics = calibrate_module(model, lambda: [model(hidden_states=x, **inputs) for x in latents],
                                  tmp_path / "stats.safetensors", keep_gram=True)
    report = nvfp4.quantize_checkpoint(source, tmp_path / "out", statistics=tmp_path / "stats.safetensors", method="gptq")
    layers = [t["name"].removesuffix(".weight") for t in report["tensors"] if t["action"] == "quantized"]
    assert layers and not [w for w in report["warnings"] if "statistic" in w or "no token" in w]
    stored = tensors(tmp_path / "out")
    for layer in layers:
        x = torch.cat(seen[layer]).double()
        assert torch.allclose(statistics.tensors[f"{layer}.diag"], x.square().sum(0))
        assert statistics.tensors[f"{layer}.count"] == len(x)
        assert statistics.tensors[f"{layer}.amax"] == x.abs().max().float()
        assert stored[f"{layer}.input_scale"] >= x.abs().max().float() / 2688 * (1 - 1e-6)
    with pytest.raises(nvfp4.InvalidValueError, match="run: no layer of the"):
        calibrate_module(model, lambda: None)


class AnyKeys(dict):
    """A checkpoint for diffusers' converters, which take tensors outside the blocks, too."""

    def __missing__(self, key):
        return torch.zeros(6, 2)

    def pop(self, key, *default):
        return super().pop(key) if key in self else self[key]


@pytest.mark.parametrize("name, converter", [
    ("FluxTransformer2DModel", "convert_flux_transformer_checkpoint_to_diffusers"),
    ("Flux2Transformer2DModel", "convert_flux2_transformer_checkpoint_to_diffusers"),
    ("SD3Transformer2DModel", "convert_sd3_transformer_checkpoint_to_diffusers"),
    ("WanTransformer3DModel", "convert_wan_transformer_to_diffusers")])
def test_comfyui_names_are_those_of_diffusers(name, converter):
    from diffusers.loaders import single_file_utils
    from nvfp4.calibrate.comfyui import comfyui_name

    with torch.device("meta"):
        model = getattr(diffusers, name)(**MODELS[name][0])
    layers = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and comfyui_name(n, name) != n]
    # The converter of FLUX knows the rows of the real model.
    weights = {n: torch.randn(12288 if "proj_mlp" in n else 3072, 2) for n in layers}
    fused = AnyKeys()
    for n in sorted(layers, key=lambda n: ("proj_mlp" in n, "_v" in n, "_k" in n)):
        for kind, tensor in (("weight", weights[n]), ("bias", weights[n][:, 0])):
            key = f"{comfyui_name(n, name)}.{kind}"
            fused[key] = torch.cat([fused[key], tensor]) if key in fused else tensor
    converted = getattr(single_file_utils, converter)(fused)
    assert len(layers) > 10 and all(torch.equal(converted[f"{n}.weight"], weights[n]) for n in layers)


def test_comfyui_name_depends_on_the_class():
    from nvfp4.calibrate.comfyui import comfyui_name

    module = "transformer_blocks.0.attn.to_q"
    assert comfyui_name(module, "QwenImageTransformer2DModel") == module
    assert comfyui_name(module, "SD3Transformer2DModel") == "joint_blocks.0.x_block.attn.qkv"
    with pytest.raises(nvfp4.InvalidValueError, match="LTXVideoTransformer3DModel, must be one of"):
        comfyui_name(module, "LTXVideoTransformer3DModel")


def test_statistics_under_names_of_comfyui(folders):
    from nvfp4.calibrate import calibrate_module

    model = load(folders("FluxTransformer2DModel")[1])
    _, shape, inputs = MODELS["FluxTransformer2DModel"]
    run = lambda: model(hidden_states=torch.ones(shape), **inputs)
    own = calibrate_module(model, run).tensors
    blocks = model.transformer_blocks
    blocks[0] = torch.compile(blocks[0], backend="eager")  # statistics are those of the module inside
    model = torch.compile(model, backend="eager")
    fused = calibrate_module(model, run, comfyui=True).tensors
    for module, part in (("double_blocks.0.img_attn.qkv", "transformer_blocks.0.attn.to_k"),
                         ("single_blocks.0.linear1", "single_transformer_blocks.0.attn.to_v")):
        assert all(torch.equal(fused[f"{module}.{key}"], own[f"{part}.{key}"]) for key in ("diag", "count", "amax"))
