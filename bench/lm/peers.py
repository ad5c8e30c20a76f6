#!/usr/bin/env python3
"""Quantizes a BF16 model with another package on the CPU, for `measure.py --other`.

  peers.py METHOD MODEL OUT --calibration FILE
  peers.py METHOD MODEL OUT --dtype bfloat16      METHOD with w4a16, which needs no data

METHOD is one of those below; each package has an environment of its own, which peers.sh makes. Calibration
is on the same windows as measure.py's, in FP32 arithmetic. OUT is the folder that the package exports.
Prints the seconds that quantizing took, without import, loading and export, as JSON; costs.py measures the
whole process.
"""

import argparse
import functools
import json
import resource
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

#: Their names for what to do: of ModelOpt a preset and its algorithm, of llm-compressor a modifier.
MODELOPT = {
    "modelopt-default": ("NVFP4_DEFAULT_CFG", None),
    "modelopt-mse": ("NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG", None),
    "modelopt-four-over-six": ("NVFP4_FOUR_OVER_SIX_CFG", None),
    "modelopt-local-hessian": ("NVFP4_W4A4_WEIGHT_LOCAL_HESSIAN_CFG", None),
    "modelopt-awq-lite": ("NVFP4_AWQ_LITE_CFG", None),
    "modelopt-w4a16": ("W4A16_NVFP4_CFG", None),
    "modelopt-w4a16-mse": ("NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG", None),
    # As its recipe nvfp4_default-kv_none-gptq has it, whose quantizers are those of the MSE preset.
    "modelopt-gptq": ("NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG", {"method": "gptq", "layerwise": {"enable": True}}),
}
LLMCOMPRESSOR = ("llmcompressor-default", "llmcompressor-mse", "llmcompressor-gptq", "llmcompressor-gptq-mse",
                 "llmcompressor-w4a16", "llmcompressor-w4a16-mse")
AUTOROUND = ("auto-round",)


def round_to_e2m1(v):
    a = v.abs().clamp(max=6)
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return (a / step).round() * step * v.sign()


def modelopt_on_a_cpu():
    """ModelOpt simulates NVFP4 in Triton only: the same two functions in PyTorch."""
    from modelopt.torch.quantization import tensor_quant
    from modelopt.torch.quantization.nn.modules import tensor_quantizer

    def static(x, amax, global_amax=None, quantize_block_scales=True, fp8_max=448.0, out_dtype=None, *_):
        unit = (amax.amax() if global_amax is None else global_amax).float() / (6 * fp8_max)
        scale = amax.float().reshape(-1, 1) / 6
        if quantize_block_scales:
            scale = (scale / unit).clamp(max=448).to(torch.float8_e4m3fn).float() * unit
        scale = torch.where(scale > 0, scale, 1.0)
        blocks = x.float().reshape(scale.numel(), -1)
        return (round_to_e2m1(blocks / scale) * scale).reshape(x.shape).to(out_dtype or x.dtype)

    def dynamic(x, block_size, amax, *_):
        blocks = x.reshape(-1, block_size)
        return static(x, blocks.abs().amax(-1), amax if amax is not None else x.abs().amax())

    tensor_quantizer.static_blockwise_fp4_fake_quant = static
    tensor_quantizer.dynamic_block_quant = dynamic
    tensor_quant.static_blockwise_fp4_fake_quant = static


def modelopt(method, model, tokens, out):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    modelopt_on_a_cpu()
    preset, algorithm = MODELOPT[method]
    config = dict(getattr(mtq, preset))
    if algorithm:
        config["algorithm"] = algorithm
    if tokens is None:
        config["quant_cfg"] = [*config["quant_cfg"], {"quantizer_name": "*input_quantizer", "enable": False}]

    def calibrate(model):
        with torch.no_grad():
            for batch in tokens.split(8):
                model(batch, use_cache=False)

    start = time.monotonic()
    model = mtq.quantize(model, config, forward_loop=calibrate if tokens is not None else None)
    seconds = time.monotonic() - start
    export_hf_checkpoint(model, export_dir=out)
    return seconds


def llmcompressor(method, model, tokens, out):
    from compressed_tensors.quantization import preset_name_to_scheme
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier

    scheme = preset_name_to_scheme("NVFP4" if tokens is not None else "NVFP4A16", ["Linear"])
    if method.endswith("-mse"):
        scheme.weights.observer = "nvfp4_expanded_mse"
    given = dict(config_groups={"group_0": scheme}, ignore=["lm_head", "re:.*mlp.gate$"])
    recipe = GPTQModifier(**given) if "gptq" in method else QuantizationModifier(**given)
    data = {}
    if tokens is not None:
        columns = {"input_ids": tokens.tolist(), "attention_mask": torch.ones_like(tokens).tolist()}
        data = dict(dataset=Dataset.from_dict(columns), num_calibration_samples=len(tokens),
                    max_seq_length=tokens.shape[1], moe_calibrate_all_experts=False)
    start = time.monotonic()
    oneshot(model=model, recipe=recipe, **data)
    seconds = time.monotonic() - start
    model.save_pretrained(out, save_compressed=True)
    return seconds


def autoround(method, model, tokens, out, iterations):
    """Runs SignSGD over the rounding of weights, so many iterations for each block of layers."""
    from auto_round import AutoRound

    tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)
    start = time.monotonic()
    AutoRound(model, tokenizer, scheme="NVFP4", iters=iterations, nsamples=len(tokens), seqlen=tokens.shape[1],
              device_map=str(model.device), dataset=list(tokens.split(1))).quantize_and_save(str(out), format="llm_compressor")
    seconds = time.monotonic() - start
    for file in list(Path(out).glob("*/*")):  # in a folder with a name of its own
        file.rename(Path(out) / file.name)
    return seconds


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("method", choices=[*MODELOPT, *LLMCOMPRESSOR, *AUTOROUND])
    a.add_argument("model", help="a folder that transformers loads")
    a.add_argument("out", help="the folder to write")
    a.add_argument("--calibration", metavar="FILE", help="documents separated by U+001E")
    a.add_argument("--windows", type=int, default=256, help="windows of 512 tokens of it (256)")
    a.add_argument("--device", default="cpu", help="(cpu)")
    a.add_argument("--iterations", type=int, default=200, help="of auto-round (200)")
    a.add_argument("--dtype", default="float32", help="of weights and arithmetic (float32)")
    options = a.parse_args()
    tokens = None
    if "w4a16" not in options.method:
        from nvfp4.evaluate.text import windows
        if not options.calibration:
            a.error("--calibration is missing")
        tokens = windows(options.calibration, AutoTokenizer.from_pretrained(options.model), options.windows)[:, :-1]
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype))
    model = model.eval().to(options.device)
    quantize = modelopt if options.method in MODELOPT else llmcompressor
    if options.method in AUTOROUND:
        quantize = functools.partial(autoround, iterations=options.iterations)
    seconds = quantize(options.method, model, tokens, options.out)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(dict(method=options.method, model=Path(options.model).name, windows=0 if tokens is None else len(tokens),
                          seconds=round(seconds, 1), peak_bytes=peak)))


if __name__ == "__main__":
    main()
