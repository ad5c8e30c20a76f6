"""nvfp4.torch.prepare() and export(): training with weights and inputs in NVFP4."""

import copy
import os
import runpy
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("nvfp4.transformers").register()

from safetensors.torch import load_file, save_file
from test_fp8_layers import loaded, logits
from test_torch_quantize import different

import nvfp4
from models_of_families import FAMILIES, TOKENS
from nvfp4.torch import export, prepare
from nvfp4.torch.training import Prepared, nearest_codes


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Returns a function that makes a model of a family and its checkpoint, once for each set of options."""
    root, made = tmp_path_factory.mktemp("training"), {}

    def make(family, **options):
        key = family, *sorted(options.items())
        if key not in made:
            torch.manual_seed(1)
            source, to = root / f"{len(made)}", root / f"{len(made)}-nvfp4"
            FAMILIES[family]().save_pretrained(source)
            nvfp4.quantize_checkpoint(source, to, keep_dtype=True, **options)
            made[key] = source, to
        return made[key]

    return make


def prepared_layers(model):
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, Prepared)}


def trained(model, folder, steps=3):
    options = transformers.TrainingArguments(folder, max_steps=steps, learning_rate=1e-3, use_cpu=True, report_to=[],
                                             save_strategy="no", per_device_train_batch_size=2, disable_tqdm=True)
    data = [{"input_ids": row, "labels": row} for row in TOKENS]
    transformers.Trainer(model, options, train_dataset=data).train()
    return model.eval()


WAYS = (("llama", {}, {}), ("llama", {"scheme": "w4a16"}, {}), ("phi3", {"recipe": "mlp"}, {"method": "mse"}),
        ("llama", {"format": "compressed-tensors"}, {"method": "max"}), ("qwen3_moe", {}, {}),
        ("qwen3_moe", {"scheme": "w4a16", "format": "compressed-tensors"}, {"method": "four_over_six"}))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("family, options", [way[:2] for way in WAYS])
def test_untrained_export_has_the_checkpoints_bytes(folders, tmp_path, family, options, dtype):
    source, checkpoint = folders(family, **options)
    export(prepare(loaded(source, dtype), checkpoint), tmp_path / "out")
    old, new = (load_file(folder / "model.safetensors") for folder in (checkpoint, tmp_path / "out"))
    rounded = set() if dtype == torch.float32 else {name for name, t in old.items() if t.dtype == torch.float32 and t.dim() > 1}
    assert set(different(old, new)) == rounded
    assert {f.name for f in checkpoint.iterdir()} - {f.name for f in (tmp_path / "out").iterdir()} == {
        "README.md", "nvfp4.files.json"}
    assert (checkpoint / "config.json").read_bytes() == (tmp_path / "out/config.json").read_bytes()
    # The checkpoint may be read by those who may read the one of prepare().
    old, new = ((folder / "model.safetensors").stat().st_mode for folder in (checkpoint, tmp_path / "out"))
    assert old == new


@pytest.mark.parametrize("family, options, way", WAYS)
def test_trainer_trains_the_exported_model(folders, tmp_path, family, options, way):
    source, checkpoint = folders(family, **options)
    model = prepare(loaded(source), checkpoint, **way)
    before = logits(model)
    trained(model, tmp_path / "run")
    export(model, tmp_path / "out")
    expected, found = logits(model), logits(loaded(tmp_path / "out"))
    assert float((expected - before).norm() / before.norm()) > 0.05
    # A sum of another order changes few codes of inputs.
    assert float((expected - found).norm() / expected.norm()) < (0.02 if options.get("scheme") != "w4a16" else 1e-5)

    old, new = (load_file(folder / "model.safetensors") for folder in (checkpoint, tmp_path / "out"))
    changed = {name.rpartition(".")[2] for name in different(old, new)}
    scales = {"weight_scale"} if way else set()
    assert changed == scales | {"weight", *(["weight_packed"] if "weight_packed" in str(old.keys()) else [])}
    for name, layer in prepared_layers(model).items():
        for part in layer.parts:
            codes, scales, multipliers = layer.codes_of(part, layer.get_parameter(part))
            expected = torch.ops.nvfp4.dequantize(codes, scales, multipliers, torch.float32)
            assert torch.equal(layer.weight_of(part).flatten(0, -2), expected), name


def test_inputs_follow_the_scheme_of_each_layer(folders, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("rules: [{kind: attention, action: w4a16}]\n")
    source, checkpoint = folders("llama", recipe=str(recipe))
    for activations, kept in ((None, True), ("mse", False), ("bf16", False)):
        layers = prepared_layers(prepare(loaded(source), checkpoint, activations=activations))
        for name, layer in layers.items():
            x = torch.randn(3, layer.in_features)
            given = layer.input_of("weight", x)
            if "self_attn" in name or activations == "bf16":
                assert given is x
            else:
                scale = {"global_scale": 1.0} if kept else {"scope": "vector"}
                q = nvfp4.quantize(x, activations or "max", **scale)
                assert torch.equal(given, q.dequantize(torch.float32)), name
        assert len(layers) == 14


def test_experts_have_input_scales_of_their_own(folders, tmp_path):
    source, checkpoint = folders("qwen3_moe")
    tensors = load_file(checkpoint / "model.safetensors")
    for number, name in enumerate(n for n in sorted(tensors) if ".experts." in n and n.endswith(".input_scale")):
        tensors[name] = torch.tensor(0.4 ** (number % 5))
    other = tmp_path / "scaled"
    other.mkdir()
    (other / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    found, plain = logits(prepare(loaded(source), other)), logits(prepare(loaded(source), checkpoint))
    torch.testing.assert_close(found, logits(loaded(other)), rtol=0, atol=1e-5)
    assert not torch.allclose(found, plain, rtol=0, atol=1e-4)


def test_codes_are_the_nearest_ties_to_even():
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
    middles = (values[1:] + values[:-1]) / 2
    x = torch.cat([values, middles, torch.nextafter(middles, torch.tensor(0.)), torch.tensor([7., 1e30, 0.])])
    x = torch.cat([x, -x, torch.randn(32 * 300 - 50, generator=torch.Generator().manual_seed(1)) * 3]).reshape(-1, 32)
    scales, multipliers = torch.tensor([[1.5, 0.25]]).expand(300, 2), torch.full((300,), 0.5)
    codes = nearest_codes((x.unflatten(1, (2, 16)) * scales[..., None] * 0.5).flatten(1),
                          scales.to(torch.float8_e4m3fn).view(torch.uint8), multipliers)
    found = torch.stack([codes & 15, codes >> 4], -1).flatten(1)
    distance = (x.abs().clamp(max=6)[..., None] - values).abs()
    least = distance == distance.amin(-1, keepdim=True)
    even, odd = (least[..., first::2].int().argmax(-1) * 2 + first for first in (0, 1))
    expected = torch.where(least[..., ::2].any(-1), even, odd)
    assert torch.equal(found & 7, expected.to(torch.uint8)) and torch.equal((found >> 3).bool(), x.signbit())
    zeros = nearest_codes(torch.ones(1, 16), torch.zeros(1, 1, dtype=torch.uint8), torch.ones(1))
    assert not zeros.any()


def test_gradients_pass_the_rounding_unchanged(folders):
    source, checkpoint = folders("llama")
    layer = next(iter(prepared_layers(prepare(loaded(source), checkpoint)).values()))
    x = torch.randn(5, layer.in_features, requires_grad=True)
    y = layer(x)
    y.backward(dy := torch.randn_like(y))
    with torch.no_grad():
        torch.testing.assert_close(layer.weight.grad, dy.T @ layer.input_of("weight", x))
        torch.testing.assert_close(x.grad, dy @ layer.weight_of("weight"))


@pytest.mark.parametrize("family", ("llama", "qwen3_moe"))
def test_copies_states_and_casts_round_equally(folders, family):
    source, checkpoint = folders(family)
    model = prepare(loaded(source), checkpoint)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    expected = logits(model)
    assert torch.equal(logits(copy.deepcopy(model)), expected)
    other = prepare(loaded(source), checkpoint)
    other.load_state_dict(model.state_dict())
    assert torch.equal(logits(other), expected)
    assert model.state_dict().keys() == loaded(source).state_dict().keys()
    cast = prepared_layers(copy.deepcopy(other).half().bfloat16())
    for name, layer in prepared_layers(other).items():
        for part in layer.parts:
            for end in ("globals", "scales", "inputs"):
                assert torch.equal(cast[name].get_buffer(f"{part}_{end}"), layer.get_buffer(f"{part}_{end}"))


@pytest.mark.filterwarnings("ignore:6 NVFP4 weights, such as model.layers.0.mlp.down_proj, are in no linear layer")
def test_wrong_checkpoints_and_models_are_named(folders, tmp_path):
    source, checkpoint = folders("llama")
    narrow, _ = folders("mixtral")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("rules: [{kind: mlp, action: fp8}]\n")
    _, fp8 = folders("llama", recipe=str(recipe))
    for call, error, text in (
            (lambda: prepare(loaded(source), source), nvfp4.FormatError, "no config.json with a quantization_config"),
            (lambda: prepare(loaded(source), tmp_path / "none"), nvfp4.FormatError, "no config.json"),
            (lambda: prepare(loaded(source), checkpoint, method="best"), nvfp4.InvalidValueError, "method = 'best'"),
            (lambda: prepare(loaded(source), checkpoint, activations="best"), nvfp4.InvalidValueError,
             "activations = 'best', must be one of max, .*bf16"),
            (lambda: prepare(FAMILIES["llama"]().to("meta"), checkpoint), nvfp4.UnsupportedError, "device meta"),
            (lambda: prepare(loaded(narrow), checkpoint), nvfp4.FormatError, r"\[64, 128\], the model has \[32, 64\]"),
            (lambda: prepare(loaded(source), fp8), nvfp4.UnsupportedError, "is FP8, all quantized weights must be NVFP4"),
            (lambda: prepare(torch.nn.Linear(64, 64), checkpoint), nvfp4.FormatError, "is no layer of the Linear"),
            (lambda: export(loaded(source), tmp_path / "out"), nvfp4.InvalidValueError, "prepare"),
            (lambda: export(prepare(loaded(source), checkpoint), source), nvfp4.InvalidValueError, "has files")):
        with pytest.raises(error, match=text):
            call()


def test_distillation_lowers_the_divergence(folders, tmp_path, monkeypatch):
    source, checkpoint = folders("llama")
    monkeypatch.setattr("sys.argv", [
        "distill.py", *map(str, (source, checkpoint, tmp_path / "out")), "--steps=24", "--windows=4", "--batch=4",
        "--length=12", "--rate=3e-4", "--activations=mse", "--device=cpu"])
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples/distill.py"), run_name="__main__")
    transformers.set_seed(1)
    text = example["generate"](teacher := loaded(source), 4, 12, 16)

    def divergence(folder):
        with torch.no_grad():
            p, q = (torch.log_softmax(model(text).logits, -1)
                    for model in (teacher, prepare(loaded(source), folder, activations="mse")))
        return float((p.exp() * (p - q)).sum(-1).mean())

    assert 0 < divergence(tmp_path / "out") < 0.9 * divergence(checkpoint)


def test_each_process_distills_with_text_of_its_own(folders, tmp_path, monkeypatch):
    source, checkpoint = folders("llama")
    monkeypatch.setattr("sys.argv", ["distill.py", *map(str, (source, checkpoint, tmp_path / "out")), "--steps=3",
                                     "--batch=2", "--length=4", "--device=cpu"])
    found = []
    monkeypatch.setattr(transformers.TrainingArguments, "world_size", 2)
    monkeypatch.setattr(transformers.Trainer, "train", lambda self: found.append(len(self.train_dataset)))
    runpy.run_path(str(Path(__file__).parents[2] / "examples/distill.py"), run_name="__main__")
    assert found == [3 * 2 * 2]


def rank_trains(rank, source, checkpoint, out):
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", OMP_NUM_THREADS="1",
                      MASTER_ADDR="localhost", CUDA_VISIBLE_DEVICES="")
    torch.distributed.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=2)
    accelerator = Accelerator(cpu=True)
    # Accelerate takes its plugin on GPUs alone.
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap")
    model = prepare(loaded(source), checkpoint)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    assert all(isinstance(p, torch.distributed.tensor.DTensor) for p in model.parameters())
    for _ in range(2):
        accelerator.backward(model(TOKENS[rank:][:1], labels=TOKENS[rank:][:1]).loss)
        optimizer.step()
    state = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}
    export(model, out / "two")
    torch.distributed.destroy_process_group()
    if rank == 0:
        save_file(state, out / "state.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("family", ("llama", "qwen3_moe"))
def test_two_ranks_export_the_bytes_of_one(folders, tmp_path, family):
    source, checkpoint = folders(family)
    torch.multiprocessing.spawn(rank_trains, (source, checkpoint, tmp_path), nprocs=2)
    model = prepare(loaded(source), checkpoint)
    model.load_state_dict(load_file(tmp_path / "state.safetensors"))
    export(model, tmp_path / "one")
    one, two, old = (load_file(f / "model.safetensors") for f in (tmp_path / "one", tmp_path / "two", checkpoint))
    assert different(one, two) == [] and "model.layers.1.self_attn.q_proj.weight" in different(two, old)
